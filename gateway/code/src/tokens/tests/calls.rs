//! Calls through the layer of tokens.

use std::sync::{Arc, Mutex};

use serde_json::{Map, json};

use super::*;
use crate::calls::{CallError, CallErrorKind, Callee, NestedCall};

/// A tool that answers what it is told to, and keeps what it got.
#[derive(Clone)]
struct Tool {
    answer: Result<Value, CallError>,
    got: Arc<Mutex<Vec<Value>>>,
}

impl Callee for Tool {
    async fn call(&self, call: NestedCall) -> Result<Value, CallError> {
        self.got.lock().unwrap().push(Value::Object(call.arguments));
        self.answer.clone()
    }
}

fn tool(answer: Result<Value, CallError>) -> Tool {
    Tool {
        answer,
        got: Arc::default(),
    }
}

fn call(arguments: &Value) -> NestedCall {
    let Value::Object(arguments) = arguments else {
        panic!("no object");
    };
    NestedCall {
        server: "crm".into(),
        tool: "find".into(),
        arguments: arguments.clone(),
    }
}

#[tokio::test]
async fn a_tool_gets_values_and_code_gets_tokens() {
    let place = tempfile::tempdir().unwrap();
    let tokenizer = Arc::new(tokenizer(place.path()));
    let tool = tool(Ok(json!({"email": "ada@example.com", "found": true})));
    let layer = TokenizingCallee {
        tokenizer: Some(Arc::clone(&tokenizer)),
        below: tool.clone(),
    };
    let first = layer.call(call(&json!({"q": "Ada"}))).await.unwrap();
    assert_eq!(first, json!({"email": "TKN_EMAIL_000001", "found": true}));
    let to = json!({"to": ["TKN_EMAIL_000001"], "text": "Hello TKN_EMAIL_000001!"});
    layer.call(call(&to)).await.unwrap();
    assert_eq!(
        *tool.got.lock().unwrap(),
        [
            json!({"q": "Ada"}),
            json!({"to": ["ada@example.com"], "text": "Hello ada@example.com!"})
        ]
    );
}

#[tokio::test]
async fn errors_have_tokens_too() {
    let place = tempfile::tempdir().unwrap();
    let error = CallErrorKind::ToolError.error("no user ada@example.com, try +15551234567");
    let layer = TokenizingCallee {
        tokenizer: Some(Arc::new(tokenizer(place.path()))),
        below: tool(Err(error)),
    };
    let error = layer.call(call(&json!({}))).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::ToolError);
    assert_eq!(
        error.message,
        "no user TKN_EMAIL_000001, try TKN_PHONE_000002"
    );
}

#[tokio::test]
async fn without_a_map_nothing_is_called_and_nothing_comes_back() {
    let place = tempfile::tempdir().unwrap();
    let tokenizer = Arc::new(tokenizer(place.path()));
    tokenizer.hide_text("ada@example.com").unwrap();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(place.path().join("tokens"))
        .unwrap();
    file.set_len(3).unwrap();

    let leaky = tool(Ok(json!("ada@example.com")));
    let layer = TokenizingCallee {
        tokenizer: Some(Arc::clone(&tokenizer)),
        below: leaky.clone(),
    };
    let error = layer
        .call(call(&json!({"to": "TKN_EMAIL_000001"})))
        .await
        .unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Unavailable);
    assert!(leaky.got.lock().unwrap().is_empty(), "{}", error.message);
    let error = layer
        .call(call(&Value::Object(Map::new())))
        .await
        .unwrap_err();
    assert_eq!(error.kind, CallErrorKind::OutcomeUnknown);
    assert!(!error.message.contains("ada"), "{}", error.message);

    let failing = CallErrorKind::ToolError.error("no ada@example.com");
    let layer = TokenizingCallee {
        tokenizer: Some(tokenizer),
        below: tool(Err(failing)),
    };
    let error = layer
        .call(call(&Value::Object(Map::new())))
        .await
        .unwrap_err();
    assert_eq!(error.kind, CallErrorKind::ToolError);
    assert!(!error.message.contains("ada"), "{}", error.message);
}
