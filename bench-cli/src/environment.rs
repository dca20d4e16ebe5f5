//! The machine a run was made on.

use std::fs;

/// The machine and the program, as far as a report names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The kernel and its release: `Linux 6.18.1`.
    pub kernel: String,
    /// The CPU's name, or its architecture where it has none.
    pub cpu: String,
    /// The version of this package.
    pub version: &'static str,
}

impl Environment {
    /// This machine.
    #[must_use]
    pub fn here() -> Self {
        let system = rustix::system::uname();
        let (name, release) = (system.sysname(), system.release());
        let described = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            kernel: format!("{} {}", name.to_string_lossy(), release.to_string_lossy()),
            cpu: cpu_name(&described)
                .map_or_else(|| system.machine().to_string_lossy().into_owned(), str::to_owned),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// The CPU's name in `/proc/cpuinfo`. Which key holds it depends on the architecture.
fn cpu_name(cpuinfo: &str) -> Option<&str> {
    ["model name", "Hardware", "cpu model", "cpu", "uarch"].into_iter().find_map(|wanted| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            let value = value.trim();
            (key.trim() == wanted && !value.is_empty()).then_some(value)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_and_a_cpu() {
        let here = Environment::here();
        assert!(here.kernel.starts_with("Linux "), "{}", here.kernel);
        assert!(!here.cpu.is_empty());
        assert_eq!(here.version, env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn each_architecture_names_its_cpu_elsewhere() {
        let x86 = "processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 7B13\n";
        assert_eq!(cpu_name(x86), Some("AMD EPYC 7B13"));
        assert_eq!(cpu_name("processor : 0\nHardware\t: BCM2835\n"), Some("BCM2835"));
        assert_eq!(cpu_name("uarch\t\t: sifive,u74-mc\n"), Some("sifive,u74-mc"));
        assert_eq!(cpu_name("processor\t: 0\nBogoMIPS\t: 50.00\n"), None);
        assert_eq!(cpu_name("model name\t:\n"), None);
    }
}
