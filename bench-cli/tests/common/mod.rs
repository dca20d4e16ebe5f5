//! The program, run as a user would.

use std::process::Command;

pub(crate) struct Ended {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn bench_cli() -> Command {
    Command::new(env!("CARGO_BIN_EXE_bench-cli"))
}

pub(crate) fn end(command: &mut Command) -> Ended {
    let output = command.output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("everything printed is UTF-8");
    Ended {
        status: output.status.code().expect("no signal ends it"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

pub(crate) fn run(arguments: &[&str]) -> Ended {
    end(bench_cli().args(arguments))
}
