//! Requests with a whole address.

use super::*;

#[tokio::test]
async fn a_request_goes_on_without_what_is_for_the_proxy() {
    let origin = Origin::start(
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close, X-Inner\r\nX-Inner: 1\r\n\
         Keep-Alive: timeout=5\r\nX-Kept: 1\r\n\r\nhello",
    )
    .await;
    let rig = Rig::new(origin.policy());
    let address = origin.address;
    let answer = rig
        .ask(&format!(
            "GET http://{address}/a?b=c HTTP/1.1\r\nHost: 10.0.0.1\r\nConnection: X-Own\r\nX-Own: 1\r\n\
             Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic eA==\r\nUpgrade: h2c\r\n\
             X-Kept: 1\r\n\r\n"
        ))
        .await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
    let lower = answer.to_ascii_lowercase();
    assert!(
        lower.contains("x-kept: 1") && !lower.contains("x-inner"),
        "{answer}"
    );
    let asked = origin.asked.lock().unwrap()[0].to_ascii_lowercase();
    assert!(asked.starts_with("get /a?b=c http/1.1\r\n"), "{asked}");
    assert!(asked.contains(&format!("host: {address}\r\n")), "{asked}");
    assert!(asked.contains("x-kept: 1"), "{asked}");
    for absent in ["10.0.0.1", "proxy", "x-own", "upgrade", "h2c"] {
        assert!(!asked.contains(absent), "{absent}: {asked}");
    }
    let traffic = rig.proxy.end().await;
    assert_eq!((traffic.connections, traffic.refused.len()), (1, 0));
}

/// Where it leads is the client's next request, and is checked like any other.
#[tokio::test]
async fn a_redirect_is_the_clients_own() {
    let origin = Origin::start(
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n",
    )
    .await;
    let rig = Rig::new(origin.policy());
    let request = format!("GET http://{}/ HTTP/1.1\r\n\r\n", origin.address);
    let answer = rig.ask(&request).await;
    assert!(answer.starts_with("HTTP/1.1 302 Found\r\n"), "{answer}");
    assert_eq!(rig.proxy.end().await.connections, 1);
}

#[tokio::test]
async fn a_server_that_speaks_nonsense_is_a_bad_gateway() {
    let origin = Origin::start("nonsense\r\n\r\n").await;
    let rig = Rig::new(origin.policy());
    let request = format!("GET http://{}/ HTTP/1.1\r\n\r\n", origin.address);
    let answer = rig.ask(&request).await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    rig.proxy.end().await;
}

/// Of two requests on one connection the second is not read, so that nothing hides behind the first.
#[tokio::test]
async fn a_connection_is_for_one_request() {
    let origin = Origin::start("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let rig = Rig::new(origin.policy());
    let request = format!("GET http://{}/ HTTP/1.1\r\n\r\n", origin.address);
    let mut stream = rig.connect().await;
    stream
        .write_all(request.repeat(2).as_bytes())
        .await
        .unwrap();
    let mut answer = Vec::new();
    // What was not read makes the end a hard one.
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    assert_eq!(rig.proxy.end().await.connections, 1);
}
