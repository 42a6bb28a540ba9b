//! 87: what is refused, however it is written, and that it is told.

use super::*;

#[tokio::test]
async fn nothing_but_public_destinations_is_asked() {
    let rig = Rig::new(AddressPolicy::public([]));
    let long = format!("GET http://{}:81/ HTTP/1.1\r\n\r\n", "a".repeat(400));
    let connect = |to: &str| format!("CONNECT {to} HTTP/1.1\r\nHost: public.example\r\n\r\n");
    let get = |address: &str| format!("GET {address} HTTP/1.1\r\nHost: public.example\r\n\r\n");
    let table = [
        (connect("127.0.0.1:443"), "address_not_public"),
        (connect("127.0.0.1:80"), "address_not_public"),
        (connect("[::1]:443"), "address_not_public"),
        (connect("[::ffff:10.0.0.1]:443"), "address_not_public"),
        (connect("[64:ff9b::7f00:1]:443"), "address_not_public"),
        (connect("[2002:7f00:1::]:443"), "address_not_public"),
        (connect("[fe80::1]:80"), "address_not_public"),
        (connect("localhost:443"), "address_not_public"),
        (connect("LOCALHOST:80"), "address_not_public"),
        (connect("169.254.169.254:80"), "address_not_public"),
        (connect("0.0.0.0:80"), "address_not_public"),
        (connect("2130706433:80"), "address_not_public"),
        (connect("0x7f000001:80"), "address_not_public"),
        (connect("0177.0.0.1:80"), "address_not_public"),
        (connect("127.1:80"), "address_not_public"),
        (connect("10.0.0.1:6379"), "port_not_allowed"),
        (connect("8.8.8.8:53"), "port_not_allowed"),
        (connect("8.8.8.8:22"), "port_not_allowed"),
        (connect("8.8.8.8:0"), "port_not_allowed"),
        (get("http://127.0.0.1/"), "address_not_public"),
        (get("http://10.0.0.1/"), "address_not_public"),
        (get("http://192.168.1.1:443/"), "address_not_public"),
        (get("http://[::1]/"), "address_not_public"),
        (
            get("http://169.254.169.254/latest/meta-data/"),
            "address_not_public",
        ),
        (get("http://127.0.0.1:6379/"), "port_not_allowed"),
        (get("http://user@127.0.0.1/"), "no_destination"),
        (get("http://8.8.8.8@127.0.0.1/"), "no_destination"),
        (get("https://8.8.8.8/"), "scheme_not_allowed"),
        (get("ftp://8.8.8.8/"), "scheme_not_allowed"),
        (get("/"), "no_destination"),
        (get("/http://8.8.8.8/"), "no_destination"),
        ("OPTIONS * HTTP/1.1\r\n\r\n".to_owned(), "no_destination"),
        (long, "port_not_allowed"),
    ];
    let mut answers = Vec::new();
    for (request, _) in &table {
        let answer = rig.ask(request).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{request}{answer}");
        answers.push(answer);
    }
    let traffic = rig.proxy.end().await;
    assert_eq!(
        (traffic.connections, traffic.refused.len()),
        (0, table.len())
    );
    for (((request, word), answer), refused) in table.iter().zip(answers).zip(traffic.refused) {
        assert_eq!(refused.why.as_str(), *word, "{request}{refused:?}");
        assert!(answer.contains(&refused.why.to_string()), "{answer}");
        // What a name means here is not told.
        if let Some(address) = refused.why.address() {
            assert!(!answer.contains(&address.to_string()), "{answer}");
        }
        assert!(refused.destination.len() <= 256);
    }
}

/// What is no request is answered by the protocol, or not at all, and never becomes one.
#[tokio::test]
async fn what_is_no_request_goes_nowhere() {
    let rig = Rig::new(AddressPolicy::public([]));
    for request in [
        "\r\n\r\n\r\n\r\nnonsense\r\n\r\n",
        "CONNECT HTTP/1.1\r\n\r\n",
        "CONNECT :443 HTTP/1.1\r\n\r\n",
        "CONNECT 127.0.0.1 HTTP/1.1\r\n\r\n",
        "CONNECT 127.0.0.1: HTTP/1.1\r\n\r\n",
        "CONNECT 127.0.0.1:99999 HTTP/1.1\r\n\r\n",
        "GET http:/// HTTP/1.1\r\n\r\n",
        "GET http://a:b:c/ HTTP/1.1\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\u{16}\u{3}\u{1}",
    ] {
        let mut stream = rig.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        // Some are hung up on with something unread.
        let _ = stream.read_to_string(&mut answer).await;
        let is_refused = answer.is_empty() || answer.starts_with("HTTP/1.1 4");
        assert!(is_refused, "{request:?}: {answer}");
    }
    assert_eq!(rig.proxy.end().await.connections, 0);
}

#[tokio::test]
async fn reports_of_one_run_have_an_end() {
    let rig = Rig::new(AddressPolicy::public([]));
    for _ in 0..150 {
        rig.ask("CONNECT 10.0.0.1:443 HTTP/1.1\r\n\r\n").await;
    }
    assert_eq!(rig.proxy.end().await.refused.len(), 100);
}

#[tokio::test]
async fn a_name_that_nobody_has_is_no_refusal() {
    let rig = Rig::new(AddressPolicy::public([]));
    let answer = rig.ask("CONNECT name.invalid:443 HTTP/1.1\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(answer.contains("name.invalid was not found"), "{answer}");
    assert_eq!(rig.proxy.end().await, Traffic::default());
}
