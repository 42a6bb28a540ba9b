//! What a step of a task costs more if it is shared fairly: prints nanoseconds a step, of a future that does nothing.

#![allow(
    clippy::print_stdout,
    reason = "the table is what the benchmark is for"
)]

use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use mooring_usage::{FlowId, fair_task, share_fairly};
use tokio::runtime::Builder;
use tokio::task::yield_now;

/// Steps of each kind that are measured.
const STEPS: u64 = 2_000_000;
/// Steps between two looks of the runtime at its other tasks.
const STEPS_AT_ONCE: u64 = 500;

/// Nanoseconds a step with so many users; a future of no user for none.
async fn measure(users: u8) -> f64 {
    let mut steps = 0;
    let step = std::future::poll_fn(|_| {
        steps += 1;
        Poll::<()>::Pending
    });
    let mut context = Context::from_waker(Waker::noop());
    let flow = |user| FlowId::of_address(IpAddr::V4(Ipv4Addr::new(127, 0, 0, user)));
    let mut others: Vec<_> = (1..users)
        .map(|user| Box::pin(fair_task(flow(user), std::future::pending::<()>())))
        .collect();
    let begun = Instant::now();
    if users == 0 {
        let mut plain = pin!(step);
        for _ in 0..STEPS {
            let _ = std::hint::black_box(plain.as_mut().poll(&mut context));
        }
    } else {
        let mut fair = pin!(fair_task(flow(0), step));
        for at in 0..STEPS {
            let _ = std::hint::black_box(fair.as_mut().poll(&mut context));
            if at % STEPS_AT_ONCE == 0 {
                for other in &mut others {
                    let _ = other.as_mut().poll(&mut context);
                }
                yield_now().await;
            }
        }
    }
    begun.elapsed().as_secs_f64() * 1e9 / steps as f64
}

fn main() -> std::io::Result<()> {
    println!("| a step | ns |\n|---|---|");
    for (name, users) in [
        ("of a plain future", 0),
        ("of a user who is alone", 1),
        ("of one of two users", 2),
        ("of one of 200 users", 200),
    ] {
        let runtime = Builder::new_current_thread().build()?;
        let nanoseconds = runtime.block_on(async {
            tokio::spawn(share_fairly());
            yield_now().await;
            measure(users).await
        });
        println!("| {name} | {nanoseconds:.0} |");
    }
    Ok(())
}
