//! Writes the tables and the plots of `docs/performance.md` from what was measured last.
//!
//! `make performance` measures first; `make plots`, or
//! `cargo run --release --package redquorum-bench --bin figures`, takes `docs/results/performance.json` as it is.

#[path = "figures/aims.rs"]
mod aims;
#[path = "../tests/shared/grouped.rs"]
mod grouped;
#[path = "../tests/shared/marks.rs"]
mod marks;
#[path = "figures/measured.rs"]
mod measured;
#[path = "shared/median.rs"]
mod median;
#[path = "shared/page.rs"]
mod page;
#[path = "figures/plots.rs"]
mod plots;
#[path = "figures/tables.rs"]
mod tables;

use measured::Measured;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const PAGE: &str = "performance.md";

fn main() -> Outcome {
    let measured = Measured::read()?;
    page::replace(PAGE, "machine", &measured.about)?;
    page::replace(PAGE, "aims", &aims::table(&measured))?;
    page::replace(PAGE, "latency", &tables::latency(&measured))?;
    page::replace(PAGE, "throughput", &tables::throughput(&measured))?;
    page::replace(PAGE, "cost", &tables::cost(&measured))?;
    page::replace(PAGE, "rest", &tables::rest(&measured))?;
    println!("written: {}", page::path(PAGE).display());
    for plot in plots::ALL {
        plot.draw(&measured)?;
        println!("written: {}", plot.path().display());
    }
    Ok(())
}
