//! What a call costs in allocations.
//!
//! Invariant: a `tools/call` of a stateful session allocates no more often, and no more bytes, than the bounds here say.
//! The count is that of this whole process: the routes, the client to the upstream server, the upstream server itself and
//! the test. The bytes have the future of the call, whose size is also what it costs to move it.

use serde_json::json;

use super::Gateway;

/// Calls that are counted, after as many that are not.
const CALLS: u64 = 100;
/// Most allocations a call.
const ALLOCATIONS_MAX: u64 = 165;
/// Most bytes in them.
const BYTES_MAX: u64 = 42 * 1024;

#[test]
fn a_call_allocates_within_its_bound() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    for server in ["a", "serial"] {
        let (gateway, session) = runtime.block_on(async {
            let gateway = Gateway::start().await;
            let session = gateway.open(server).await;
            (gateway, session)
        });
        let calls = || {
            runtime.block_on(async {
                for _ in 0..CALLS {
                    let answer = gateway
                        .echo(server, &session, json!({"text": "hello"}))
                        .await;
                    assert!(answer.status.is_success(), "{}", answer.text);
                    // What is left to other tasks is done before a client's next request can arrive.
                    for _ in 0..4 {
                        tokio::task::yield_now().await;
                    }
                }
            });
        };
        calls();
        let counted = allocation_counter::measure(calls);
        let (count, bytes) = (counted.count_total / CALLS, counted.bytes_total / CALLS);
        assert!(
            count <= ALLOCATIONS_MAX && bytes <= BYTES_MAX,
            "{server}: {count} allocations of {bytes} bytes a call"
        );
    }
}
