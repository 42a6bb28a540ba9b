//! Work on the volume, which blocks.

use tokio::task::spawn_blocking;

use crate::http::rest::Problem;

/// Runs work on the volume on a blocking thread.
pub(super) async fn blocking<T: Send + 'static, E: Into<Problem> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, Problem> {
    match spawn_blocking(work).await {
        Ok(done) => done.map_err(Into::into),
        Err(error) => {
            tracing::error!(%error, "a request about runs or skills panicked");
            Err(Problem::internal())
        }
    }
}
