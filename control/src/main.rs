//! The `warmroute` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    warmroute_control::main()
}
