//! The helper as a binary of its own, for the tests and benchmarks of this crate. In production the gateway's own
//! binary is started again under this name.

fn main() {
    mooring_sandbox::helper::helper()
}
