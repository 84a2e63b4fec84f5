use super::*;

#[test]
fn the_contract_is_seen_in_a_command_line_that_is_refused() {
    for (line, contract) in [
        ("peerscope check --bogus", Contract::Default),
        ("peerscope check --bogus --exit-contract nagios", Contract::Nagios),
        ("peerscope --exit-contract=nagios frobnicate", Contract::Nagios),
        ("peerscope --exit-contract=default frobnicate", Contract::Default),
        ("peerscope --exit-contract nonsense", Contract::Default),
        ("peerscope check --exit-contract", Contract::Default),
        ("peerscope diagnose -- --exit-contract nagios", Contract::Default),
    ] {
        assert_eq!(contract_in(line.split(' ').map(OsString::from)), contract, "{line}");
    }
}
