//! The program, from its arguments to its exit status. Which schedulers there are is not known
//! here.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use crate::affinity::Allowed;
use crate::args::{self, EchoOptions, Format, HELP, Options, Request, UsageError};
use crate::echo::{self, EchoFailure, EchoReport, EchoServers};
use crate::environment::Environment;
use crate::progress::Progress;
use crate::report::{Report, json, text};
use crate::run::{self, RunError};
use crate::{Floor, Subjects};

/// Why the program ends without a report.
#[derive(Debug)]
pub enum Error {
    /// The command line is not understood.
    Usage(UsageError),
    /// The backend is not to be had: why not, and what would help.
    Unavailable(String),
    /// A trial failed.
    Run(RunError),
    /// A run of the workload `echo` failed.
    Echo(EchoFailure),
    /// The report could not be written.
    Output(io::Error),
    /// The system would not say which CPUs may be used.
    Cpus(rustix::io::Errno),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(error) => error.fmt(f),
            Self::Unavailable(reason) => f.write_str(reason),
            Self::Run(error) => error.fmt(f),
            Self::Echo(failure) => write!(f, "echo failed: {failure}"),
            Self::Output(error) => write!(f, "cannot write to standard output: {error}"),
            Self::Cpus(errno) => write!(f, "cannot ask which CPUs may be used: {errno}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<UsageError> for Error {
    fn from(error: UsageError) -> Self {
        Self::Usage(error)
    }
}

impl From<RunError> for Error {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

impl Error {
    /// 2 for bad usage, else 1.
    fn status(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Unavailable(_)
            | Self::Run(_)
            | Self::Echo(_)
            | Self::Output(_)
            | Self::Cpus(_) => 1,
        }
    }
}

/// Does what the arguments (without the program's name) ask for. `measure` chooses the scheduler
/// and then calls [`measure()`]; so does `echo` with [`echo()`].
pub fn main(
    arguments: impl IntoIterator<Item = OsString>,
    measure: impl FnOnce(&Options) -> Result<Report, Error>,
    echo: impl FnOnce(&EchoOptions) -> Result<EchoReport, Error>,
) -> ExitCode {
    match serve(arguments, measure, echo) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error);
            ExitCode::from(error.status())
        }
    }
}

/// Tells the person at the terminal something that is not part of the report.
pub fn say(what: impl fmt::Display) {
    // Where standard error is closed, there is nobody left to tell.
    let _ = writeln!(io::stderr(), "bench-cli: {what}");
}

/// Runs the trials of one kind of scheduler, and makes their report. `instead_of` says, if so,
/// which backend would have been better and why it was not to be had.
///
/// # Errors
///
/// The trial that failed.
pub fn measure(
    options: &Options,
    subjects: &impl Subjects,
    floor: &impl Floor,
    instead_of: Option<String>,
) -> Result<Report, Error> {
    let mut progress = Progress::on_stderr(options.plan.trials);
    let measured = run::run(&options.plan, subjects, floor, &mut progress)?;
    Ok(Report::new(&measured, &options.plan, Environment::here(), instead_of))
}

/// Has an echo server of one kind do its work under load, and makes the report. `instead_of` is as
/// for [`measure`].
///
/// # Errors
///
/// What went wrong.
pub fn echo(
    options: &EchoOptions,
    servers: &impl EchoServers,
    instead_of: Option<String>,
) -> Result<EchoReport, Error> {
    let ((backend, detail), load) = echo::run(servers, &options.plan).map_err(Error::Echo)?;
    let detail = match instead_of {
        None => detail,
        Some(other) => format!("{detail}; instead of {other}"),
    };
    let (plan, environment) = (options.plan, Environment::here());
    Ok(EchoReport { backend, detail, plan, environment, load })
}

fn serve(
    arguments: impl IntoIterator<Item = OsString>,
    measure: impl FnOnce(&Options) -> Result<Report, Error>,
    echo: impl FnOnce(&EchoOptions) -> Result<EchoReport, Error>,
) -> Result<(), Error> {
    let mut written = Vec::new();
    match args::parse(arguments)? {
        Request::Help => print(HELP.as_bytes()),
        Request::Version => {
            print(concat!("bench-cli ", env!("CARGO_PKG_VERSION"), "\n").as_bytes())
        }
        Request::Measure(options) => {
            args::check_cpus(options.plan.pin, &Allowed::now().map_err(Error::Cpus)?)?;
            let report = measure(&options)?;
            match options.format {
                Format::Text => text::write(&report, &mut written),
                Format::Json => json::write(&report, &mut written),
            }
            .map_err(Error::Output)?;
            print(&written)
        }
        Request::Echo(options) => {
            args::check_cpus(options.plan.pin, &Allowed::now().map_err(Error::Cpus)?)?;
            let report = echo(&options)?;
            match options.format {
                Format::Text => report.write_text(&mut written),
                Format::Json => report.write_json(&mut written),
            }
            .map_err(Error::Output)?;
            print(&written)
        }
    }
}

/// Writes to standard output. A reader who has seen enough and left is no error.
fn print(what: &[u8]) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(what).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Error::Output(error)),
        _ => Ok(()),
    }
}
