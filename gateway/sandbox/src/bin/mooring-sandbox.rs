//! The helper as a separate binary, for the tests and benchmarks of this crate. In production the gateway's own binary
//! is re-executed under this name.

fn main() {
    mooring_sandbox::helper::helper()
}
