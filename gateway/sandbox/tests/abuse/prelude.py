# What every attack in Python stands on. The lines before this one set MARKER and the places.
import ctypes
import errno
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)
# The name under which the host finds what is left of this run.
libc.prctl(15, MARKER.encode(), 0, 0, 0)

REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS)


def call(number, *arguments):
    """A system call by its number; raises what it answers."""
    longs = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    answer = libc.syscall(ctypes.c_long(number), *longs)
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer


def reach(number, *arguments):
    """Like call, but what only the call itself can answer, such as a bad address, counts as done."""
    try:
        return call(number, *arguments)
    except OSError as error:
        if error.errno in REFUSALS:
            raise
        return errno.errorcode[error.errno]


def in_child(action):
    """The action in a process of its own; raises what it raised there, or that it was killed."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 0
        try:
            action()
        except OSError as error:
            code = error.errno
        except BaseException as error:
            print(error, file=sys.stderr, flush=True)
            code = 200
        os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise PermissionError(errno.EPERM, f"killed by signal {os.WTERMSIG(status)}")
    if os.WEXITSTATUS(status) == 200:
        raise RuntimeError("the attack itself is broken")
    if os.WEXITSTATUS(status) != 0:
        raise OSError(os.WEXITSTATUS(status), os.strerror(os.WEXITSTATUS(status)))


def attempt(number, name, attack):
    try:
        shown = attack()
    except (OSError, MemoryError) as error:
        verdict, shown = "refused", error
    except BaseException as error:
        verdict, shown = "broken", f"{type(error).__name__}: {error}"
    else:
        verdict = "done"
    print(f"{number}|{name}|{verdict}|" + ascii(str(shown))[:300], flush=True)


