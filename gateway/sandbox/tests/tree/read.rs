//! Reading: regular files with one name, and nothing else, without ever waiting.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;

use mooring_sandbox::tree::{TreeAccess, TreeError, read};

use crate::support::{Session, at, is_root, make_device, make_fifo, promptly};

const ENOUGH: u64 = 1 << 20;

#[test]
fn a_file_is_read_whole_up_to_the_limit() {
    let session = Session::new();
    fs::create_dir(session.scratch("a")).unwrap();
    fs::write(session.scratch("a/b.txt"), b"hello").unwrap();
    let content = read(
        &session.view(),
        &at("/scratch/a/b.txt"),
        5,
        &TreeAccess::WHOLE,
    )
    .unwrap();
    assert_eq!(content.bytes, b"hello");
    assert!(content.modified_at_ms > 1_600_000_000_000);
    let error = read(
        &session.view(),
        &at("/scratch/a/b.txt"),
        4,
        &TreeAccess::WHOLE,
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "/scratch/a/b.txt: 5 bytes, of which at most 4 can be read"
    );
    assert!(matches!(
        read(
            &session.view(),
            &at("/scratch/a"),
            ENOUGH,
            &TreeAccess::WHOLE
        ),
        Err(TreeError::IsADirectory(_))
    ));
    assert!(matches!(
        read(&session.view(), &at("/"), ENOUGH, &TreeAccess::WHOLE),
        Err(TreeError::IsADirectory(_))
    ));
    assert!(matches!(
        read(
            &session.view(),
            &at("/scratch/no"),
            ENOUGH,
            &TreeAccess::WHOLE
        ),
        Err(TreeError::NotFound(_))
    ));
    assert!(matches!(
        read(
            &session.view(),
            &at("/scratch/a/b.txt/c"),
            ENOUGH,
            &TreeAccess::WHOLE
        ),
        Err(TreeError::NotADirectory(_))
    ));
}

#[test]
fn what_a_run_may_have_left_is_refused_and_never_waited_for() {
    let session = Session::new();
    let secret = session.path("secret");
    fs::write(&secret, b"secret").unwrap();
    symlink(&secret, session.scratch("link")).unwrap();
    symlink("/proc/self/environ", session.scratch("environ")).unwrap();
    symlink("/proc/self/fd/0", session.scratch("magic")).unwrap();
    symlink(session.path(""), session.scratch("directory_link")).unwrap();
    symlink("/dev/zero", session.scratch("zero")).unwrap();
    symlink("loop", session.scratch("loop")).unwrap();
    make_fifo(&session.scratch("fifo"));
    make_device(&session.scratch("device"), 0, 0);
    if is_root() {
        make_device(&session.scratch("null"), 1, 3);
    }
    let _listener = UnixListener::bind(session.scratch("socket")).unwrap();
    assert_eq!(
        fs::read(session.scratch("link")).unwrap(),
        b"secret",
        "the attack works without the defence"
    );
    let mut hostile = vec![
        "link",
        "environ",
        "magic",
        "directory_link/secret",
        "zero",
        "loop",
        "fifo",
        "device",
    ];
    hostile.extend(["socket", "directory_link"]);
    if is_root() {
        hostile.push("null");
    }
    let view = session.view();
    promptly(move || {
        for name in hostile {
            let error = read(
                &view,
                &at(&format!("/scratch/{name}")),
                ENOUGH,
                &TreeAccess::WHOLE,
            )
            .unwrap_err();
            assert!(matches!(error, TreeError::Special(_)), "{name}: {error:?}");
        }
    });
}

#[test]
fn a_second_name_of_a_file_is_refused_where_agents_write() {
    let session = Session::new();
    let other = session.path("other");
    fs::write(&other, b"another's").unwrap();
    fs::hard_link(&other, session.scratch("mine")).unwrap();
    fs::hard_link(&other, session.path("tools/shared")).unwrap();
    assert!(matches!(
        read(
            &session.view(),
            &at("/scratch/mine"),
            ENOUGH,
            &TreeAccess::WHOLE
        ),
        Err(TreeError::Linked(_))
    ));
    assert_eq!(
        read(
            &session.view(),
            &at("/tools/shared"),
            ENOUGH,
            &TreeAccess::WHOLE
        )
        .unwrap()
        .bytes,
        b"another's"
    );
}

#[test]
fn a_sparse_file_is_refused_by_its_length() {
    let session = Session::new();
    fs::File::create(session.scratch("sparse"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    let view = session.view();
    let error = promptly(move || {
        read(&view, &at("/scratch/sparse"), ENOUGH, &TreeAccess::WHOLE).unwrap_err()
    });
    assert!(matches!(error, TreeError::TooLarge { size_bytes, .. } if size_bytes == 1 << 40));
}

#[test]
fn an_unreadable_file_says_so_without_a_place_on_the_host() {
    let session = Session::new();
    fs::write(session.scratch("closed"), b"x").unwrap();
    fs::set_permissions(session.scratch("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    match read(
        &session.view(),
        &at("/scratch/closed"),
        ENOUGH,
        &TreeAccess::WHOLE,
    ) {
        Ok(content) => assert!(is_root() && content.bytes == b"x"),
        Err(error) => assert_eq!(error.to_string(), "could not open a file"),
    }
}
