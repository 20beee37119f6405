"""A seccomp filter, as a classic BPF program, that leaves a process its own memory and reading.

What is denied fails with EPERM: making processes and threads, sockets, files opened for writing,
changes of the file system, signals, limits, privileges. Source: seccomp(2); numbers of system calls
from the kernel's tables for x86-64 and aarch64.
"""

from __future__ import annotations

import errno
import os
import platform
import struct
import sys

# name, x86-64, aarch64; "-" where an architecture has no such call, "a..b" for a run of numbers.
_DENIED = """
sockets 41..55 198..212; accept4 288 242; recvmmsg 299 243; sendmmsg 307 269; clone 56 220;
fork 57 -; vfork 58 -; execve 59 221; execveat 322 281; kill 62 129; tkill 200 130; tgkill 234 131;
rt_sigqueueinfo 129 138; rt_tgsigqueueinfo 297 240; ptrace 101 117; kcmp 312 272;
process_vm_readv 310 270; process_vm_writev 311 271; shm 29..31 194..196; sem 64..66 190..193;
msg 68..71 186..189; semtimedop 220 -; mq_open 240 180; mq_unlink 241 181; truncate 76 45;
ftruncate 77 46; fallocate 285 47; creat 85 -; rename 82 -; renameat 264 38; renameat2 316 276;
mkdir 83 -; mkdirat 258 34; rmdir 84 -; unlink 87 -; unlinkat 263 35; link 86 -; linkat 265 37;
symlink 88 -; symlinkat 266 36; chmod 90..91 52..53; fchmodat 268 -; chown 92..94 54..55;
fchownat 260 -; mknod 133 33; mknodat 259 -; utime 132 88; utimes 235 -; futimesat 261 -;
utimensat 280 -; setxattr 188..190 5..7; removexattr 197..199 14..16;
name_to_handle 303..304 264..265; memfd 319 279; setuid 105..106 143..147; setpgid 109 154;
setsid 112 157; setre 113..114 -; setgroups 116 159; setresuid 117 -; setresgid 119 149;
setfs 122..123 151..152; capset 126 91; personality 135 92; setpriority 141 140; ioprio_set 251 30;
sched 142 118..119; sched_setscheduler 144 -; sched_setattr 314 274; sched_setaffinity 203 122;
mlock 149..152 228..231; prctl 157 167; setrlimit 160 164; prlimit64 302 261; chroot 161 51;
pivot_root 155 41; acct 163 89; settimeofday 164 170; clock_settime 227 112; clock_adjtime 305 266;
adjtimex 159 171; mount 165..166 39..40; swap 167..168 224..225; reboot 169 142;
names 170..171 161..162; io 172..173 -; modules 175..176 105..106; finit_module 313 273;
kexec 246 104; kexec_file 320 294; quotactl 179 60; keys 248..250 217..219; syslog 103 116;
aio 206..210 0..4; inotify 253..255 26..28; fanotify 300..301 262..263; unshare 272 97;
setns 308 268; perf_event 298 241; seccomp 317 277; bpf 321 280; userfaultfd 323 282;
pages 256 238..239; move_pages 279 -; mbind 237..238 235..237
"""
# machine -> (audit number, column above, calls that open files: number and place of the flags)
_ARCHITECTURES = {
    "x86_64": (0xC000003E, 0, ((2, 1), (257, 2))),
    "aarch64": (0xC00000B7, 1, ((56, 2),)),
}
# From here on numbers are the same everywhere: clone3, openat2, io_uring, pidfds, mounts. The C
# library does without all of them when they are unknown, so they are.
_FIRST_NEW = 424
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000


def denied_calls(machine: str) -> list[int]:
    """Numbers of the system calls that are denied on a machine ("x86_64", "aarch64")."""
    column = _ARCHITECTURES[machine][1]
    numbers: list[int] = []
    for entry in _DENIED.split(";"):
        span = entry.split()[1 + column]
        if span != "-":
            first, _, last = span.partition("..")
            numbers += range(int(first), int(last or first) + 1)
    return numbers


def filter_program(machine: str | None = None) -> bytes | None:
    """The filter for this machine, or for a named one: instructions of 8 bytes, in native order.

    None where there is no seccomp or no table for the machine.
    """
    if machine is None:
        machine = platform.machine()
        if not sys.platform.startswith("linux") or sys.maxsize < 2**32:
            return None
    if machine not in _ARCHITECTURES:
        return None
    architecture, _, opening = _ARCHITECTURES[machine]
    deny = (_RETURN, 0, 0, _ERROR | errno.EPERM)
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _FIRST_NEW),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
    ]
    for number in denied_calls(machine):
        program += [(_EQUAL, 0, 1, number), deny]
    for number, place in opening:
        program += [
            (_EQUAL, 0, 4, number),
            (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * place),
            (_ANY_BIT, 0, 1, _WRITING),
            deny,
            (_RETURN, 0, 0, _ALLOW),
        ]
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
