//! Step: a private loopback interface, with one socket at which the host answers.
//!
//! A socket belongs to the network namespace in which it was created, whichever process has it: created here and passed
//! to the host, it connects the two. Nothing else leads out of the namespace.

use std::mem;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen as listen_on, socket_with};

use super::error::{HelperStep, StepError};
use crate::job::PROXY_PORT;
use crate::protocol::WireNetwork;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// The listening socket, if the program may connect to one. Must be called inside the namespaces, with all capabilities
/// in them.
pub(super) fn listen(network: &WireNetwork) -> Result<Option<OwnedFd>, StepError> {
    match network {
        WireNetwork::None => Ok(None),
        WireNetwork::Proxy { .. } => {
            let socket = socket_with(
                AddressFamily::INET,
                SocketType::STREAM,
                SocketFlags::CLOEXEC,
                None,
            )
            .map_err(HelperStep::NETWORK.at("socket"))?;
            raise_loopback(&socket)?;
            bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, PROXY_PORT))
                .map_err(HelperStep::NETWORK.at("bind"))?;
            listen_on(&socket, BACKLOG).map_err(HelperStep::NETWORK.at("listen"))?;
            Ok(Some(socket))
        }
    }
}

/// A new namespace has a loopback that is down. Raised, it has its address.
fn raise_loopback(socket: &OwnedFd) -> Result<(), StepError> {
    // SAFETY: all bytes zero are a value of this structure of numbers.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the call reads the structure, which lives until it returns, and the descriptor is open.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request) };
    if result == 0 {
        return Ok(());
    }
    Err(HelperStep::NETWORK.at("raise the loopback")(
        std::io::Error::last_os_error(),
    ))
}
