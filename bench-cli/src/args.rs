//! The command line.

mod help;
mod nearest;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use pico_args::Arguments;

use crate::affinity::Allowed;
use crate::echo::{EchoPlan, Loop};
use crate::{Pin, Plan};

pub use help::HELP;

/// What the command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// To measure service latency.
    Measure(Options),
    /// To measure an echo server.
    Echo(EchoOptions),
    /// To print [`HELP`].
    Help,
    /// To print the version.
    Version,
}

/// How to measure, and how to report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// With which reactor.
    pub backend: Backend,
    /// What to do.
    pub plan: Plan,
    /// How to print the report.
    pub format: Format,
}

/// How to measure an echo server, and how to report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoOptions {
    /// Over which reactor.
    pub backend: Backend,
    /// What to do.
    pub plan: EchoPlan,
    /// How to print the report.
    pub format: Format,
}

/// `--backend`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// `io_uring`, and nothing else.
    Uring,
    /// epoll, and nothing else.
    Epoll,
    /// `io_uring`, or epoll where that is refused.
    Auto,
}

/// Whether `--json` was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Bad usage, in one line that names the argument and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageError(String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// A whole number with its limits. Zero is never among what is allowed.
struct Number {
    option: &'static str,
    otherwise: u32,
    in_smoke: u32,
    most: u32,
}

const TRIALS: Number = Number { option: "--trials", otherwise: 40, in_smoke: 3, most: 100_000 };
const BACKLOG_MS: Number =
    Number { option: "--backlog-ms", otherwise: 20, in_smoke: 5, most: 60_000 };
const TASKS: Number = Number { option: "--tasks", otherwise: 1, in_smoke: 1, most: 1_000_000 };
const TIMEOUT_MS: Number =
    Number { option: "--timeout-ms", otherwise: 2000, in_smoke: 2000, most: 600_000 };

const CONNECTIONS: Number =
    Number { option: "--connections", otherwise: 64, in_smoke: 8, most: 10_000 };
const BYTES: Number = Number { option: "--bytes", otherwise: 64, in_smoke: 64, most: 16_777_216 };
const RATE: Number = Number { option: "--rate", otherwise: 0, in_smoke: 0, most: 10_000_000 };
const DURATION_MS: Number =
    Number { option: "--duration-ms", otherwise: 2000, in_smoke: 100, most: 3_600_000 };

const WORKLOAD: &str = "--workload";
const WORKLOADS: &str = "service or echo";
const BACKEND: &str = "--backend";
const BACKENDS: &str = "uring, epoll or auto";
const PIN: &str = "--pin";
const PINS: &str = "two CPU numbers, WORKER,REMOTE, for example 0,1";
const SMOKE: &str = "--smoke";
const JSON: &str = "--json";
const HELP_OPTIONS: [&str; 2] = ["-h", "--help"];
const VERSION_OPTIONS: [&str; 2] = ["-V", "--version"];

/// Those followed by a value, for which there is `--option=value` too.
const VALUED: [&str; 11] = [
    WORKLOAD,
    BACKEND,
    TRIALS.option,
    BACKLOG_MS.option,
    TASKS.option,
    TIMEOUT_MS.option,
    PIN,
    CONNECTIONS.option,
    BYTES.option,
    RATE.option,
    DURATION_MS.option,
];
/// Those that only one workload has.
const OF_SERVICE: [&str; 2] = [TRIALS.option, BACKLOG_MS.option];
const OF_ECHO: [&str; 4] = [CONNECTIONS.option, BYTES.option, RATE.option, DURATION_MS.option];
/// Those that stand alone.
const FLAGS: [&str; 6] =
    [SMOKE, JSON, HELP_OPTIONS[0], HELP_OPTIONS[1], VERSION_OPTIONS[0], VERSION_OPTIONS[1]];

/// Understands the arguments, without the program's name. Who asks for help gets it, whatever
/// else is wrong.
///
/// # Errors
///
/// The first argument that is not allowed.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Request, UsageError> {
    let arguments: Vec<_> = arguments.into_iter().collect();
    let asks =
        |options: [&str; 2]| arguments.iter().any(|given| options.iter().any(|o| given == o));
    if asks(HELP_OPTIONS) {
        return Ok(Request::Help);
    }
    if asks(VERSION_OPTIONS) {
        return Ok(Request::Version);
    }

    let mut rest = Arguments::from_vec(arguments.into_iter().flat_map(split).collect());
    let pace = match flag(&mut rest, SMOKE)? {
        Given::Yes => Pace::Smoke,
        Given::No => Pace::Full,
    };
    let format = match flag(&mut rest, JSON)? {
        Given::Yes => Format::Json,
        Given::No => Format::Text,
    };
    let workload = workload(&mut rest)?;
    let backend = backend(&mut rest)?;
    let request = match workload {
        Workload::Service => {
            alien(&mut rest, &OF_ECHO, "echo")?;
            let plan = Plan {
                trials: TRIALS.parse(&mut rest, pace)?,
                backlog: milliseconds(BACKLOG_MS.parse(&mut rest, pace)?),
                tasks: TASKS.parse(&mut rest, pace)?,
                timeout: milliseconds(TIMEOUT_MS.parse(&mut rest, pace)?),
                pin: pin(&mut rest)?,
            };
            Request::Measure(Options { backend, plan, format })
        }
        Workload::Echo => {
            alien(&mut rest, &OF_SERVICE, "service")?;
            let plan = EchoPlan {
                connections: CONNECTIONS.parse(&mut rest, pace)?,
                bytes: BYTES.parse(&mut rest, pace)?,
                pace: RATE.given(&mut rest)?.map_or(Loop::Closed, Loop::Open),
                duration: milliseconds(DURATION_MS.parse(&mut rest, pace)?),
                tasks: TASKS.given(&mut rest)?.map_or(0, NonZeroU32::get),
                timeout: milliseconds(TIMEOUT_MS.parse(&mut rest, pace)?),
                pin: pin(&mut rest)?,
            };
            Request::Echo(EchoOptions { backend, plan, format })
        }
    };
    match rest.finish().first() {
        None => Ok(request),
        Some(unexpected) => Err(not_understood(unexpected)),
    }
}

/// `--workload`
enum Workload {
    Service,
    Echo,
}

fn workload(rest: &mut Arguments) -> Result<Workload, UsageError> {
    match value(rest, WORKLOAD, WORKLOADS)?.as_deref() {
        None | Some("service") => Ok(Workload::Service),
        Some("echo") => Ok(Workload::Echo),
        Some(other) => not_allowed(WORKLOAD, WORKLOADS, other),
    }
}

/// An option of another workload is no option here.
fn alien(rest: &mut Arguments, options: &[&'static str], workload: &str) -> Result<(), UsageError> {
    match options.iter().find(|&&option| rest.contains(option)) {
        None => Ok(()),
        Some(option) => usage(format!("{option} needs {WORKLOAD} {workload}")),
    }
}

/// Whether the process may use the CPUs it is to be pinned to.
///
/// # Errors
///
/// The CPU that it may not use, and those that it may.
pub fn check_cpus(pin: Option<Pin>, allowed: &Allowed) -> Result<(), UsageError> {
    match pin.and_then(|pin| allowed.missing(pin)) {
        None => Ok(()),
        Some(cpu) => {
            usage(format!("{PIN}: CPU {cpu} is not available; this process may use {allowed}"))
        }
    }
}

/// Whether this is a smoke run, in which other numbers are the usual ones.
#[derive(Clone, Copy)]
enum Pace {
    Full,
    Smoke,
}

/// Whether a flag was given.
enum Given {
    Yes,
    No,
}

impl Number {
    fn parse(&self, rest: &mut Arguments, pace: Pace) -> Result<NonZeroU32, UsageError> {
        let number = match (value(rest, self.option, &self.allowed())?, pace) {
            (Some(given), _) => return self.read(&given),
            (None, Pace::Full) => self.otherwise,
            (None, Pace::Smoke) => self.in_smoke,
        };
        Ok(NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN))
    }

    /// For one that stays away unless it is given.
    fn given(&self, rest: &mut Arguments) -> Result<Option<NonZeroU32>, UsageError> {
        value(rest, self.option, &self.allowed())?.map(|given| self.read(&given)).transpose()
    }

    fn read(&self, given: &str) -> Result<NonZeroU32, UsageError> {
        digits(given)
            .and_then(|number| u32::try_from(number).ok())
            .and_then(NonZeroU32::new)
            .filter(|number| number.get() <= self.most)
            .map_or_else(|| not_allowed(self.option, &self.allowed(), given), Ok)
    }

    fn allowed(&self) -> String {
        format!("a whole number from 1 to {}", self.most)
    }
}

fn backend(rest: &mut Arguments) -> Result<Backend, UsageError> {
    match value(rest, BACKEND, BACKENDS)?.as_deref() {
        None | Some("auto") => Ok(Backend::Auto),
        Some("uring") => Ok(Backend::Uring),
        Some("epoll") => Ok(Backend::Epoll),
        Some(other) => not_allowed(BACKEND, BACKENDS, other),
    }
}

fn pin(rest: &mut Arguments) -> Result<Option<Pin>, UsageError> {
    let Some(given) = value(rest, PIN, PINS)? else {
        return Ok(None);
    };
    given
        .split_once(',')
        .and_then(|(worker, remote)| Some(Pin { worker: digits(worker)?, remote: digits(remote)? }))
        .map_or_else(|| not_allowed(PIN, PINS, &given), |pin| Ok(Some(pin)))
}

/// A number that is written in digits and nothing else, if it fits.
fn digits(given: &str) -> Option<usize> {
    given.bytes().all(|byte| byte.is_ascii_digit()).then(|| given.parse().ok())?
}

fn milliseconds(number: NonZeroU32) -> Duration {
    Duration::from_millis(number.get().into())
}

/// `--option=value` becomes two arguments, if that option takes a value.
fn split(argument: OsString) -> Vec<OsString> {
    let bytes = argument.as_bytes();
    let Some(equals) = bytes.iter().position(|&byte| byte == b'=') else {
        return vec![argument];
    };
    let option = OsStr::from_bytes(&bytes[..equals]);
    if VALUED.iter().any(|valued| option == *valued) {
        vec![option.to_owned(), OsStr::from_bytes(&bytes[equals + 1..]).to_owned()]
    } else {
        vec![argument]
    }
}

/// Takes a flag, which may be given once.
fn flag(rest: &mut Arguments, option: &'static str) -> Result<Given, UsageError> {
    if !rest.contains(option) {
        return Ok(Given::No);
    }
    if rest.contains(option) { repeated(option) } else { Ok(Given::Yes) }
}

/// Takes an option's value, which may be given once.
fn value(
    rest: &mut Arguments,
    option: &'static str,
    allowed: &str,
) -> Result<Option<String>, UsageError> {
    let given = rest.opt_value_from_os_str(option, |value| Ok::<_, UsageError>(value.to_owned()));
    let given = match given {
        Ok(Some(given)) => given,
        Ok(None) => return Ok(None),
        // The closure cannot fail, so this is the other error: nothing follows the option.
        Err(_) => return incomplete(option, allowed),
    };
    if rest.contains(option) {
        return repeated(option);
    }
    if given.is_empty() || given.as_bytes().starts_with(b"--") {
        return incomplete(option, allowed);
    }
    match given.into_string() {
        Ok(given) => Ok(Some(given)),
        Err(given) => usage(format!(
            "{option} must be {allowed}, not '{}' (which is not UTF-8)",
            given.to_string_lossy()
        )),
    }
}

fn usage<T>(line: String) -> Result<T, UsageError> {
    Err(UsageError(line))
}

fn not_allowed<T>(option: &str, allowed: &str, given: &str) -> Result<T, UsageError> {
    usage(format!("{option} must be {allowed}, not '{}'", given.escape_debug()))
}

fn incomplete<T>(option: &str, allowed: &str) -> Result<T, UsageError> {
    usage(format!("{option} needs a value: {allowed}"))
}

fn repeated<T>(option: &str) -> Result<T, UsageError> {
    usage(format!("{option} is given more than once; once is allowed"))
}

/// What is left when all that is known has been taken.
fn not_understood(unexpected: &OsStr) -> UsageError {
    let shown = unexpected.to_string_lossy();
    let utf8 = if unexpected.to_str().is_some() { "" } else { " (which is not UTF-8)" };
    if !shown.starts_with('-') {
        return UsageError(format!(
            "unexpected argument '{}'{utf8}: only options are allowed, see --help",
            shown.escape_debug()
        ));
    }
    let name = shown.split('=').next().unwrap_or_default();
    if FLAGS.contains(&name) {
        return UsageError(format!(
            "{name} takes no value, but '{}' gives one",
            shown.escape_debug()
        ));
    }
    let hint = nearest::of(name, VALUED.into_iter().chain(FLAGS))
        .map_or_else(|| "see --help".into(), |option| format!("did you mean {option}?"));
    UsageError(format!("unknown option '{}'{utf8}: {hint}", shown.escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, UsageError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn options(line: &str) -> Options {
        match parsed(line) {
            Ok(Request::Measure(options)) => options,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn echo_options(line: &str) -> EchoOptions {
        match parsed(line) {
            Ok(Request::Echo(options)) => options,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn echo_has_a_plan_of_its_own() {
        let EchoOptions { plan, .. } = echo_options("--workload echo");
        assert_eq!((plan.connections.get(), plan.bytes.get(), plan.tasks), (64, 64, 0));
        assert_eq!((plan.pace, plan.duration), (Loop::Closed, Duration::from_secs(2)));
        let line =
            "--workload=echo --rate=500 --connections 3 --bytes 1000 --duration-ms 7 --tasks 9";
        let EchoOptions { plan, .. } = echo_options(line);
        assert_eq!(plan.pace, Loop::Open(NonZeroU32::new(500).unwrap()));
        assert_eq!((plan.connections.get(), plan.bytes.get(), plan.tasks), (3, 1000, 9));
        assert_eq!(plan.duration, Duration::from_millis(7));
        let EchoOptions { plan, .. } = echo_options("--workload echo --smoke --bytes 9");
        assert_eq!((plan.connections.get(), plan.bytes.get()), (8, 9));
        assert!(matches!(parsed("--workload service"), Ok(Request::Measure(_))));
    }

    #[test]
    fn an_option_of_another_workload_is_refused() {
        assert_eq!(refusal("--workload echo --trials 3"), "--trials needs --workload service");
        assert_eq!(refusal("--connections 3"), "--connections needs --workload echo");
        assert_eq!(refusal("--rate=3"), "--rate needs --workload echo");
        assert_eq!(refusal("--workload ehco"), "--workload must be service or echo, not 'ehco'");
        assert_eq!(
            refusal("--workload echo --rate 0"),
            "--rate must be a whole number from 1 to 10000000, not '0'"
        );
    }

    fn refusal(line: &str) -> String {
        parsed(line).unwrap_err().to_string()
    }

    fn numbers(line: &str) -> (u32, u128) {
        let plan = options(line).plan;
        (plan.trials.get(), plan.backlog.as_millis())
    }

    #[test]
    fn nothing_means_the_usual() {
        let usual = options("");
        assert_eq!((usual.backend, usual.format), (Backend::Auto, Format::Text));
        assert_eq!(numbers(""), (40, 20));
        assert_eq!(usual.plan.tasks.get(), 1);
        assert_eq!(usual.plan.timeout, Duration::from_secs(2));
        assert_eq!(usual.plan.pin, None);
    }

    #[test]
    fn every_option_is_understood_in_both_spellings() {
        let spaced = "--backend epoll --trials 7 --backlog-ms 8 --tasks 9 --timeout-ms 10 \
                      --pin 0,3 --json";
        let joined = "--backend=epoll --trials=7 --backlog-ms=8 --tasks=9 --timeout-ms=10 \
                      --pin=0,3 --json";
        let options = options(spaced);
        assert_eq!(parsed(joined), Ok(Request::Measure(options)));
        assert_eq!((options.backend, options.format), (Backend::Epoll, Format::Json));
        assert_eq!(numbers(spaced), (7, 8));
        assert_eq!(options.plan.tasks.get(), 9);
        assert_eq!(options.plan.timeout, Duration::from_millis(10));
        assert_eq!(options.plan.pin, Some(Pin { worker: 0, remote: 3 }));
        assert_eq!(self::options("--backend uring").backend, Backend::Uring);
        assert_eq!(self::options("--backend auto").backend, Backend::Auto);
    }

    #[test]
    fn smoke_is_short_unless_told_otherwise_in_any_order() {
        assert_eq!(numbers("--smoke"), (3, 5));
        assert_eq!(numbers("--smoke --trials 9"), (9, 5));
        assert_eq!(numbers("--trials 9 --smoke"), (9, 5));
        assert_eq!(numbers("--backlog-ms 50 --smoke"), (3, 50));
    }

    #[test]
    fn help_and_version_win_over_everything() {
        assert_eq!(parsed("--trials --help"), Ok(Request::Help));
        assert_eq!(parsed("--nonsense -h --version"), Ok(Request::Help));
        assert_eq!(parsed("-V"), Ok(Request::Version));
        assert_eq!(parsed("--trials 0 --version"), Ok(Request::Version));
    }

    #[test]
    fn a_number_out_of_bounds_is_told_the_bounds() {
        for bad in ["0", "-1", "+1", "1.5", "1e3", "many", "0x10", "100001", "99999999999999999999"]
        {
            assert_eq!(
                refusal(&format!("--trials {bad}")),
                format!("--trials must be a whole number from 1 to 100000, not '{bad}'")
            );
        }
        assert_eq!(
            refusal("--tasks=1000001"),
            "--tasks must be a whole number from 1 to 1000000, not '1000001'"
        );
        assert_eq!(numbers("--trials 100000 --backlog-ms 60000"), (100_000, 60_000));
    }

    #[test]
    fn a_missing_value_is_not_taken_from_the_next_option() {
        let incomplete = "--trials needs a value: a whole number from 1 to 100000";
        assert_eq!(refusal("--trials"), incomplete);
        assert_eq!(refusal("--trials --json"), incomplete);
        assert_eq!(refusal("--trials --backend epoll"), incomplete);
        assert_eq!(refusal("--trials="), incomplete);
        assert_eq!(refusal("--backend"), "--backend needs a value: uring, epoll or auto");
    }

    #[test]
    fn repetition_is_refused_even_of_the_same() {
        let twice = |option| format!("{option} is given more than once; once is allowed");
        assert_eq!(refusal("--trials 5 --trials 5"), twice("--trials"));
        assert_eq!(refusal("--trials=5 --trials"), twice("--trials"));
        assert_eq!(refusal("--json --json"), twice("--json"));
    }

    #[test]
    fn what_is_unknown_is_told_its_nearest_neighbour() {
        assert_eq!(refusal("--trails 5"), "unknown option '--trails': did you mean --trials?");
        assert_eq!(
            refusal("--backlog=5"),
            "unknown option '--backlog=5': did you mean --backlog-ms?"
        );
        assert_eq!(refusal("--frobnicate"), "unknown option '--frobnicate': see --help");
        assert_eq!(refusal("--"), "unknown option '--': see --help");
    }

    #[test]
    fn free_arguments_and_values_of_flags_are_refused() {
        assert_eq!(
            refusal("--trials 5 6"),
            "unexpected argument '6': only options are allowed, see --help"
        );
        assert_eq!(refusal("--json=yes"), "--json takes no value, but '--json=yes' gives one");
    }

    #[test]
    fn pins_are_two_numbers() {
        for bad in ["0", "0,", ",1", "0,1,2", "a,b", "0,-1", "0,99999999999999999999"] {
            assert_eq!(
                refusal(&format!("--pin {bad}")),
                format!("--pin must be {PINS}, not '{bad}'")
            );
        }
        assert_eq!(options("--pin 1,1").plan.pin, Some(Pin { worker: 1, remote: 1 }));
    }

    #[test]
    fn what_is_not_utf8_is_refused_by_name() {
        let broken = OsString::from(OsStr::from_bytes(b"4\xff"));
        assert_eq!(
            parse(["--trials".into(), broken.clone()]).unwrap_err().to_string(),
            "--trials must be a whole number from 1 to 100000, not '4\u{fffd}' (which is not UTF-8)"
        );
        assert_eq!(
            parse([broken]).unwrap_err().to_string(),
            "unexpected argument '4\u{fffd}' (which is not UTF-8): only options are allowed, \
             see --help"
        );
    }

    #[test]
    fn an_error_is_one_line_whatever_it_quotes() {
        let error = parse(["--backend".into(), "ur\ning".into()]).unwrap_err().to_string();
        assert_eq!(error, "--backend must be uring, epoll or auto, not 'ur\\ning'");
    }

    #[test]
    fn help_is_short_and_names_every_option() {
        assert!(HELP.lines().count() < 60);
        assert!(HELP.lines().all(|line| line.chars().count() <= 80));
        for option in VALUED.into_iter().chain(FLAGS) {
            assert!(HELP.contains(option), "{option}");
        }
        for Number { option, otherwise, most, .. } in [TRIALS, BACKLOG_MS, TASKS, TIMEOUT_MS] {
            let (_, after) = HELP.split_once(&format!("{option} N")).unwrap();
            let (description, _) = after.split_once("\n  -").unwrap();
            let limits = format!("1 to {most} [{otherwise}]");
            assert!(description.contains(&limits), "{option}: {description}");
        }
    }
}
