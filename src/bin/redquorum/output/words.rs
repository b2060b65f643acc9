//! The library's advice names functions; the user of the command line has options.

const WORDS: &[(&str, &str)] = &[
    (
        "put one into the address, redis://user:password@host, or give Instance::credentials",
        "give one by REDQUORUM_PASSWORD or --password-file",
    ),
    (
        "check user and password, in the address or from their provider",
        "check the user, and the password in REDQUORUM_PASSWORD, --password-file or the address",
    ),
    ("or give them with Instance::credentials", "or give the password by REDQUORUM_PASSWORD or --password-file"),
    (
        "(see 'changing max_ttl' in redquorum::guide::operations)",
        "(--max-ttl; docs/operations.md, under 'Changing max_ttl')",
    ),
    (
        "trust who signed it with Tls::ca, or name whom it is for with Tls::server_name",
        "trust who signed it with --tls-ca",
    ),
    ("(with Admission::Off an instance", "(with --no-admission an instance"),
    ("Tls::client_certificate", "--tls-cert and --tls-key"),
    ("Tls::ca", "--tls-ca"),
    ("it continues in the background", "what is left expires with its ttl"),
    ("redquorum::guide::operations", "docs/operations.md, under 'Access rights'"),
];

/// An error of the library, in words for the command line.
pub(crate) fn with_options(text: &str) -> String {
    WORDS.iter().fold(text.to_owned(), |text, (call, option)| text.replace(call, option))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_replaced_word_is_one_that_the_library_says() {
        let sources = [
            include_str!("../../../error/mod.rs"),
            include_str!("../../../protocol/round/cause.rs"),
            include_str!("../../../instance/redis/address.rs"),
            include_str!("../../../instance/redis/tls/rustls.rs"),
        ];
        // Long lines are broken in the sources.
        let said =
            sources.map(|text| text.replace("\\\n", "").split_whitespace().collect::<Vec<_>>().join(" ")).concat();
        for (words, _) in WORDS {
            assert!(said.contains(words), "{words}");
        }
    }

    #[test]
    fn an_error_about_an_address_names_the_options() {
        let text = "it cannot be read; write .., or give them with Instance::credentials";
        assert!(with_options(text).ends_with("or give the password by REDQUORUM_PASSWORD or --password-file"));
    }
}
