//! Writes the tables and plots of the pages from what was measured last, which is in `docs/results`.
//!
//! `make plots`, or `cargo run --release --package redquorum-bench --bin figures`. What measures (`make performance`,
//! `compare-others`, `bench-contended`, `bench-shared`, `admission-price`) calls it.

#[path = "figures/aims.rs"]
mod aims;
#[path = "figures/comparison.rs"]
mod comparison;
#[path = "figures/drill.rs"]
mod drill;
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
#[path = "figures/price.rs"]
mod price;
#[path = "shared/ratio.rs"]
mod ratio;
#[path = "figures/tables.rs"]
mod tables;

use measured::Measured;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A page, what stands between which marks in it, and of what measurement that is.
type Part = (&'static str, &'static str, &'static str, fn(&Measured) -> String);

const PARTS: [Part; 13] = [
    ("performance.md", "machine", "performance", about),
    ("performance.md", "aims", "performance", aims::table),
    ("performance.md", "latency", "performance", tables::latency),
    ("performance.md", "throughput", "performance", tables::throughput),
    ("performance.md", "cost", "performance", tables::cost),
    ("performance.md", "rest", "performance", tables::rest),
    ("comparison.md", "shared", "shared", |measured| after_about(measured, &comparison::shared(measured))),
    ("comparison.md", "leaders", "shared", comparison::leaders),
    ("comparison.md", "waiting", "contended", |measured| after_about(measured, &comparison::waiting(measured))),
    ("comparison.md", "others", "others", |measured| after_about(measured, &comparison::others(measured))),
    ("drills.md", "drill", "drill", |measured| after_about(measured, &drill::tables(measured))),
    ("drills.md", "mixture", "mixture", |measured| after_about(measured, &drill::mixture(measured))),
    ("admission-price.md", "price", "admission", |measured| after_about(measured, &price::table_of(measured))),
];

fn about(measured: &Measured) -> String {
    measured.about.clone()
}

fn after_about(measured: &Measured, table: &str) -> String {
    format!("{}\n\n{table}", measured.about)
}

fn main() -> Outcome {
    for (page, name, measurement, text) in PARTS {
        page::replace(page, name, &text(&Measured::read(measurement)?))?;
        println!("written: {}, {name}", page::path(page).display());
    }
    for plot in plots::ALL {
        plot.draw(&Measured::read("performance")?)?;
        println!("written: {}", plot.path().display());
    }
    Ok(())
}

#[test]
fn pages_have_the_figures_that_were_measured() -> Outcome {
    for (page, name, measurement, text) in PARTS {
        let written = std::fs::read_to_string(page::path(page))?;
        let again = marks::between_marks(&written, name, &text(&Measured::read(measurement)?));
        assert_eq!(again.as_ref(), Some(&written), "{page}, {name}: `make plots` writes it");
    }
    Ok(())
}
