"""Does with files what it is told on standard input, one JSON list [order, [arguments]] a line, and answers each
with a line: {"result": ...} or {"errno": "ENOENT"}."""
import ctypes, errno, fcntl, json, mmap, os, stat, struct, sys

os.chdir(sys.argv[1])
opened, mapped = {}, {}
FLAGS = {"r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR, "a": os.O_WRONLY | os.O_APPEND,
         "rw direct dsync": os.O_RDWR | os.O_DIRECT | os.O_DSYNC, "rw direct": os.O_RDWR | os.O_DIRECT,
         "a direct": os.O_WRONLY | os.O_APPEND | os.O_DIRECT}


# io_setup, io_submit, io_getevents, io_destroy
AIO = {"x86_64": (206, 209, 208, 207), "aarch64": (0, 2, 4, 1)}.get(os.uname().machine)
PWRITE = 1


def submitted(fd, content, offset):
    """Writes by io_submit(2), and returns what became of it."""
    setup, submit, get, destroy = AIO
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    context = ctypes.c_ulong()
    buffer = mmap.mmap(-1, max(len(content), 1))
    buffer.write(content)
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    block = ctypes.create_string_buffer(
        struct.pack("=QIIHhIQQqQII", 0, 0, 0, PWRITE, 0, fd, address, len(content), offset, 0, 0, 0))
    blocks = (ctypes.c_void_p * 1)(ctypes.addressof(block))
    event = ctypes.create_string_buffer(32)
    if call(setup, 4, ctypes.byref(context)) != 0:
        raise OSError(ctypes.get_errno(), "io_setup")
    try:
        if call(submit, context, ctypes.c_long(1), blocks) != 1:
            raise OSError(ctypes.get_errno(), "io_submit")
        if call(get, context, ctypes.c_long(1), ctypes.c_long(1), event, None) != 1:
            raise OSError(ctypes.get_errno(), "io_getevents")
    finally:
        call(destroy, context)
    result = struct.unpack("=QQqq", event.raw)[2]
    if result < 0:
        raise OSError(-result, "written")
    return result


def whole(fd, offset=0):
    parts = []
    while part := os.pread(fd, 1 << 16, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts).decode("latin-1")


class Orders:
    def create(name, content, mode=0o644):
        fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
        os.write(fd, content.encode("latin-1"))
        os.close(fd)

    def append(name, content):
        fd = os.open(name, os.O_WRONLY | os.O_APPEND)
        os.write(fd, content.encode("latin-1"))
        os.close(fd)

    def append_many(name, tag, count):
        fd = os.open(name, os.O_WRONLY | os.O_APPEND)
        for number in range(count):
            os.write(fd, b"%s%05d\n" % (tag.encode(), number))
        os.close(fd)

    def overwrite(name, offset, content):
        fd = os.open(name, os.O_WRONLY)
        os.pwrite(fd, content.encode("latin-1"), offset)
        os.close(fd)

    def read(name):
        fd = os.open(name, os.O_RDONLY)
        try:
            return whole(fd)
        finally:
            os.close(fd)

    def stat(name):
        found = os.stat(name)
        return {"size": found.st_size, "mode": stat.S_IMODE(found.st_mode), "nlink": found.st_nlink,
                "uid": found.st_uid, "ino": found.st_ino}

    def list(name):
        return sorted(os.listdir(name))

    def rename(old, new):
        os.rename(old, new)

    def truncate(name, size):
        os.truncate(name, size)

    def allocate(name, size):
        fd = os.open(name, os.O_WRONLY)
        os.posix_fallocate(fd, 0, size)
        os.close(fd)

    def unlink(name):
        os.unlink(name)

    def mkdir(name):
        os.mkdir(name)

    def rmdir(name):
        os.rmdir(name)

    def chmod(name, mode):
        os.chmod(name, mode)

    def chown(name, uid, gid):
        os.chown(name, uid, gid)

    def set_xattr(name, attribute, value):
        os.setxattr(name, attribute, bytes.fromhex(value))

    def xattr(name, attribute):
        return os.getxattr(name, attribute).hex()

    def open(name, how):
        fd = os.open(name, FLAGS[how])
        opened[fd] = True
        return fd

    def close(fd):
        os.close(fd)
        del opened[fd]

    def pread(fd, size, offset):
        return os.pread(fd, size, offset).decode("latin-1")

    def pwrite(fd, content, offset):
        return os.pwrite(fd, content.encode("latin-1"), offset)

    def write(fd, content):
        return os.write(fd, content.encode("latin-1"))

    def submit(fd, content, offset):
        return submitted(fd, content.encode("latin-1"), offset)

    def fstat(fd):
        found = os.fstat(fd)
        return {"size": found.st_size, "nlink": found.st_nlink}

    def ftruncate(fd, size):
        os.ftruncate(fd, size)

    def fsync(fd):
        os.fsync(fd)

    def map(name, size):
        fd = os.open(name, os.O_RDWR)
        mapped[name] = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        os.close(fd)

    def unmap(name):
        mapped.pop(name).close()

    def read_into(fd, name, rounds):
        """Reads the file's beginning into what is mapped of another, again and again."""
        for _ in range(rounds):
            os.preadv(fd, [memoryview(mapped[name])[:512]], 0)

    def visit(fd, rounds, writes):
        """Reads the file's beginning, or writes it, again and again."""
        for number in range(rounds):
            if writes:
                os.pwrite(fd, b"%03d!" % (number % 1000) * 128, 0)
            else:
                os.pread(fd, 100, 0)

    def load(name, offset, size):
        return mapped[name][offset:offset + size].decode("latin-1")

    def store(name, offset, content):
        mapped[name][offset:offset + len(content)] = content.encode("latin-1")

    def msync(name):
        mapped[name].flush()

    def flock(fd, is_exclusive):
        fcntl.flock(fd, fcntl.LOCK_EX if is_exclusive else fcntl.LOCK_UN)

    def refused_locks(name, rounds):
        """Locks the file and closes it, on one processor after the other. Returns the rounds that were refused."""
        refused, processors = [], sorted(os.sched_getaffinity(0))
        for number in range(rounds):
            os.sched_setaffinity(0, {processors[number % len(processors)]})
            fd = os.open(name, os.O_RDONLY)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                refused.append(number)
            os.close(fd)
        return refused


for line in sys.stdin:
    order, arguments = json.loads(line)
    try:
        answer = {"result": getattr(Orders, order)(*arguments)}
    except OSError as error:
        answer = {"errno": errno.errorcode.get(error.errno, str(error))}
    print(json.dumps(answer), flush=True)
