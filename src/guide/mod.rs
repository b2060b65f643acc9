// The pages of `docs/`, so that they are at hand where the crate's documentation is, and their examples compile. A page links
// by reference, as in `[fencing.md]`; the first definition counts, and `links.md` leads to the modules here.
#![doc = include_str!("links.md")]
#![doc = include_str!("../../docs/README.md")]

macro_rules! pages {
    ($($name:ident: $page:literal,)*) => {$(
        #[doc = include_str!("links.md")]
        #[doc = include_str!($page)]
        pub mod $name {}
    )*};
}

pages! {
    went_wrong: "../../docs/went-wrong.md",
    start: "../../docs/start.md",
    recipes: "../../docs/recipes.md",
    fencing: "../../docs/fencing.md",
    testing: "../../docs/own-tests.md",
    migration: "../../docs/migration.md",
    operations: "../../docs/operations.md",
    cli: "../../docs/cli.md",
    safety: "../../docs/safety.md",
    protocol: "../../docs/protocol.md",
    wire: "../../docs/wire.md",
    comparison: "../../docs/comparison.md",
    performance: "../../docs/performance.md",
}
