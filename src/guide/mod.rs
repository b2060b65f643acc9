// The pages of `docs/`, so that they are at hand where the crate's documentation is, and their examples compile. A page links
// by reference, as in `[fencing.md]`; what stands first counts, and `links.md` leads to the modules here.
#![doc = include_str!("links.md")]
#![doc = include_str!("../../docs/README.md")]

pub mod start {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("../../docs/start.md")]
}

pub mod recipes {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("../../docs/recipes.md")]
}

pub mod fencing {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("../../docs/fencing.md")]
}

pub mod testing {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("../../docs/own-tests.md")]
}

pub mod migration {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("../../docs/migration.md")]
}

pub mod operations {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("../../docs/operations.md")]
}

pub mod cli {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("../../docs/cli.md")]
}

pub mod safety {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("../../docs/safety.md")]
}

pub mod protocol {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("../../docs/protocol.md")]
}

pub mod wire {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("../../docs/wire.md")]
}

pub mod comparison {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("../../docs/comparison.md")]
}

pub mod performance {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("../../docs/performance.md")]
}
