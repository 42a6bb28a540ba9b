//! A hook: an HTTP service that is asked about tool calls, and answers as the test says.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What a hook answers.
#[derive(Clone, Debug)]
pub enum HookAnswer {
    /// Status 200 with this body, and the `call_id` of the question if it has none.
    Json(Value),
    /// This status without a body.
    Status(u16),
    /// Nothing, ever.
    Silence,
}

impl HookAnswer {
    /// The call, or its result, goes on.
    #[must_use]
    pub fn allowed() -> Self {
        Self::Json(json!({"allow": true}))
    }
}

type Questions = Arc<Mutex<Vec<Value>>>;

/// A running hook.
#[derive(Debug)]
pub struct Hook {
    url: String,
    questions: Questions,
    serving: JoinHandle<()>,
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Hook {
    /// Starts a hook that answers each question with what `decide` makes of it.
    pub async fn start(
        decide: impl Fn(&Value) -> HookAnswer + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen")?;
        let url = format!("http://{}/", listener.local_addr()?);
        let questions = Questions::default();
        let (asked, decide) = (Arc::clone(&questions), Arc::new(decide));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (asked, decide) = (Arc::clone(&asked), Arc::clone(&decide));
                let service = service_fn(move |request| {
                    let (asked, decide) = (Arc::clone(&asked), Arc::clone(&decide));
                    async move { answer(request, &asked, &*decide).await }
                });
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        Ok(Self {
            url,
            questions,
            serving,
        })
    }

    /// Where it is asked.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The questions since the last time that this was called.
    #[must_use]
    pub fn questions(&self) -> Vec<Value> {
        let mut questions = self
            .questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *questions)
    }
}

async fn answer(
    request: Request<Incoming>,
    asked: &Questions,
    decide: &(impl Fn(&Value) -> HookAnswer + ?Sized),
) -> Result<Response<Full<Bytes>>, Infallible> {
    let respond = |status: StatusCode, body: String| {
        let mut response = Response::new(Full::from(body));
        *response.status_mut() = status;
        Ok(response)
    };
    let authorization = request.headers().get("authorization").cloned();
    let body = request
        .into_body()
        .collect()
        .await
        .map(|body| body.to_bytes());
    let question = body
        .ok()
        .and_then(|body| serde_json::from_slice::<Value>(&body).ok());
    let (Some(question), Some(_)) = (question, authorization) else {
        return respond(StatusCode::BAD_REQUEST, String::new());
    };
    let mut answer = decide(&question);
    if let HookAnswer::Json(Value::Object(answer)) = &mut answer {
        answer
            .entry("call_id")
            .or_insert_with(|| question.get("call_id").cloned().unwrap_or_default());
    }
    asked
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(question);
    match answer {
        HookAnswer::Json(answer) => respond(StatusCode::OK, answer.to_string()),
        HookAnswer::Status(status) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::IM_A_TEAPOT);
            respond(status, String::new())
        }
        HookAnswer::Silence => std::future::pending().await,
    }
}
