//! Failure drills: breaks instances in containers while clients lock, and checks that nobody held a lock twice.
//!
//! One program in several parts: `drill run` drives the Docker engine; in its containers it is `drill client`,
//! `drill referee` and `drill proxy`.

mod check;
mod client;
mod clock;
mod docker;
mod event;
mod options;
mod proxy;
mod referee;
mod report;
mod run;
mod scenario;
mod stage;

use std::process::ExitCode;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ended = part(&arguments).await;
    match ended {
        Ok(code) => code,
        Err(error) => {
            eprintln!("drill: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn part(arguments: &[String]) -> Outcome<ExitCode> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["run", options @ ..] => return run::run(&options::Options::parse(options)?).await,
        ["list"] => {
            for scenario in scenario::SCENARIOS {
                println!("{:<24} {}", scenario.name, scenario.about);
            }
        }
        ["client", job] => {
            let job = serde_json::from_str(job)?;
            while !std::path::Path::new("/tmp/go").exists() {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            client::run(job).await?;
        }
        ["referee"] => referee::serve().await?,
        ["proxy", target] => proxy::serve((*target).to_owned()).await?,
        _ => return Err(options::USAGE.into()),
    }
    Ok(ExitCode::SUCCESS)
}
