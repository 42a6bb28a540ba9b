//! One scenario over every kind of store.

/// Runs a scenario over every kind of store, each with a name of its own for what it makes.
macro_rules! over_every_store {
    ($($scenario:ident;)*) => {$(
        mod $scenario {
            use crate::clock::Clock;
            use crate::test_support::{embedded, memory, redis_store as redis, scripted_store};
            use crate::test_support::server::{Module, RedisServer};

            #[tokio::test]
            async fn in_memory() {
                super::$scenario(&memory(Clock::system())).await;
            }

            #[tokio::test]
            async fn in_the_file() {
                let directory = tempfile::tempdir().unwrap();
                let path = directory.path().join("sessions.db");
                super::$scenario(&embedded(&path, Clock::system())).await;
            }

            #[tokio::test]
            async fn in_redis() {
                let server = RedisServer::start(Module::Loaded);
                super::$scenario(&redis(&server).await).await;
            }

            #[tokio::test]
            async fn in_redis_without_the_module() {
                let server = RedisServer::start(Module::Absent);
                super::$scenario(&scripted_store(&server).await).await;
            }
        }
    )*};
}

pub(super) use over_every_store;
