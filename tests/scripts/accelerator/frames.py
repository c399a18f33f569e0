"""Makes and damages packets as accelerators send them to each other (docs/accelerator.md has the format).

A frame is bytes, as on the wire: Ethernet, IPv4 without options, then UDP or TCP.
"""

import random
import struct

from tests.scripts.accelerator.traffic import internet_checksum

WIRE_TOS = 0x30
IP, L4 = 14, 34  # offsets of the IP header, and of the UDP or TCP header, in a frame
UDP, TCP = 17, 6
GROUP, RECORD = 4, 8  # bytes of the headers of a bundle (the payload of a compressed packet) and of each record in it
ICMP = 1


def is_ipv4(frame):
    return len(frame) >= L4 and frame[12:14] == b"\x08\0"


def is_wire(frame):
    """Returns whether the frame is one between accelerators: ToS 0x30, with the reserved bit clear."""
    return is_ipv4(frame) and frame[15] & 0xFC == WIRE_TOS and not frame[20] & 0x80


def payload_at(frame):
    return L4 + (8 if frame[23] == UDP else 4 * (frame[46] >> 4))


def is_bundle(frame):
    at = payload_at(frame) if is_wire(frame) and frame[23] in (UDP, TCP) else len(frame)
    return frame[at : at + 2] == b"\xa6\x21"


def source_of(frame):
    return ".".join(str(byte) for byte in frame[26:30]) if is_ipv4(frame) else None


def checksums_right(frame):
    """Returns whether the checksums of IP and of UDP or TCP are right. A UDP checksum of 0 means that there is none."""
    length = struct.unpack_from("!H", frame, 16)[0]
    none = frame[23] == UDP and frame[40:42] == b"\0\0"
    return internet_checksum(frame[IP:L4]) == 0 and (none or _l4_sum(frame[: IP + length]) == 0)


def _l4_sum(frame):
    pseudo = frame[26:34] + bytes([0, frame[23]]) + struct.pack("!H", len(frame) - L4)
    return internet_checksum(pseudo + frame[L4:])


def put_right(frame):
    """Returns the frame with correct lengths and checksums."""
    frame = bytearray(frame)
    struct.pack_into("!H", frame, 16, len(frame) - IP)
    struct.pack_into("!H", frame, 24, 0)
    struct.pack_into("!H", frame, 24, internet_checksum(bytes(frame[IP:L4])))
    at = L4 + (6 if frame[23] == UDP else 16)
    if frame[23] == UDP:
        struct.pack_into("!H", frame, L4 + 4, len(frame) - L4)
    if frame[23] in (UDP, TCP):
        struct.pack_into("!H", frame, at, 0)
        struct.pack_into("!H", frame, at, _l4_sum(bytes(frame)) or 0xFFFF)
    return bytes(frame)


def sent_from(frame, ip):
    return put_right(frame[:26] + bytes(int(part) for part in ip.split(".")) + frame[30:])


def with_payload(frame, payload):
    return put_right(frame[: payload_at(frame)] + payload)


def changed(frame, offset, *values):
    """Returns the frame with the bytes `values` at `offset` of its payload, and with correct checksums."""
    at = payload_at(frame) + offset
    return put_right(frame[:at] + bytes(values) + frame[at + len(values) :])


def hello(frame, port=18400):
    """Returns a hello of an accelerator, with the addresses of this UDP frame. `port` is both its source and its
    destination."""
    return with_payload(frame[:34] + struct.pack("!HH", port, port) + frame[38:], b"\xa6\x22\0\0" + bytes(range(8)))


# ---- Malformed packets, which must not be delivered: each function damages a valid compressed packet of one record.


def noise(generator, frame):
    return with_payload(frame, generator.randbytes(generator.randint(0, 1400)))


def noise_in_group(generator, frame):
    at = payload_at(frame)
    # The record claims a payload size that is no multiple of four, so no codec can have made it from floats.
    record = struct.pack("<H", 4 * generator.randint(1, 300) + 1) + generator.randbytes(2) + b"\0\0\0\0"
    return with_payload(frame, frame[at : at + GROUP] + record + generator.randbytes(generator.randint(0, 900)))


def wrong_ip_checksum(generator, frame):
    at = generator.choice((24, 25))
    return frame[:at] + bytes([frame[at] ^ (1 << generator.randrange(8))]) + frame[at + 1 :]


def flipped(generator, frame):
    """Flips one bit, as a bad link does. The checksum reveals it."""
    at = generator.randrange(L4, len(frame))
    return frame[:at] + bytes([frame[at] ^ (1 << generator.randrange(8))]) + frame[at + 1 :]


def cut(generator, frame):
    """Cuts the frame short, with correct lengths and checksums."""
    return put_right(frame[: generator.randrange(payload_at(frame), len(frame))])


def lengthened(generator, frame):
    return put_right(frame + generator.randbytes(generator.randint(1, 7)))


def other_version(generator, frame):
    return changed(frame, 1, generator.choice([v for v in range(256) if v >> 4 != 2]))


def other_kind(generator, frame):
    return changed(frame, 1, 0x20 | generator.choice((0, *range(4, 16))))


def unknown_codec(generator, frame):
    return changed(frame, 2, generator.randint(5, 255), generator.randrange(256))


def unknown_parameter(generator, frame):
    return changed(frame, 3, generator.choice((0, *range(31, 128), 255)))


def raw_codec(_generator, frame):
    """Changes the codec to raw, whose blocks have another length."""
    return changed(frame, 2, 0, 0)


def lying_payload(generator, frame):
    size = struct.unpack_from("<H", frame, payload_at(frame) + GROUP)[0]
    lie = generator.choice((0, 1, size + 1, size - 1, size ^ 2, 4 * 368 + 4, 65535, 65532, size + 256))
    return changed(frame, GROUP, *struct.pack("<H", lie))


def lying_block(generator, frame):
    size = struct.unpack_from("<H", frame, payload_at(frame) + GROUP + 2)[0]
    lie = generator.choice([n for n in (0, 1, size - 1, size + 1, size + 8, 65535) if n != size])
    return changed(frame, GROUP + 2, *struct.pack("<H", lie))


def lying_shape(generator, frame):
    shape = frame[payload_at(frame) + GROUP + 4]
    return changed(frame, GROUP + 4, shape ^ generator.choice((1, 2, 4, 8, 32, 64, 128)))


def not_zero(generator, frame):
    return changed(frame, GROUP + 5, generator.randint(1, 255))


def lying_mask(generator, frame):
    return changed(frame, GROUP + 6, *struct.pack("<H", 1 << generator.randrange(16)))


def tiny_record(count=16):
    """Returns a record of `count` floats that are all 0."""
    return struct.pack("<HHBBH", 4 * count, 1, 0, 0, 0) + bytes(1)


def of_tiny_records(frame, count):
    at = payload_at(frame)
    return with_payload(frame, frame[at : at + GROUP] + tiny_record() * count)


def too_many_records(generator, frame):
    return of_tiny_records(frame, generator.randint(33, 60))


def lying_second_record(generator, frame):
    """Returns a bundle whose first record is right and whose second record is wrong."""
    lie = generator.choice((
        struct.pack("<HHBBH", 64, 0xFFFF, 0, 0, 0) + bytes(1), struct.pack("<HHBBH", 0xFFFC, 1, 0, 0, 0) + bytes(1),
        struct.pack("<HHBBH", 64, 1, 0, 0, 0xFFFF) + bytes(1), struct.pack("<HHBBH", 64, 1, 0, 0, 0x8000) + bytes(5),
        struct.pack("<HHBBH", 64, 1, 0xE0, 0, 0) + bytes(1), tiny_record()[:-1], tiny_record() + b"\0",
        # The restored packet would be an IP fragment.
        struct.pack("<HHBBH", 64, 1, 0, 0, 1) + b"\1\1\x20\1" + bytes(1)))
    at = payload_at(frame)
    return with_payload(frame, frame[at : at + GROUP] + tiny_record() + lie)


def fragment(generator, frame):
    frame = bytearray(frame)
    struct.pack_into("!H", frame, 20, generator.choice((0x2000, 0x2001, 100)))
    return put_right(frame)


def with_options(_generator, frame):
    frame = frame[:14] + b"\x46" + frame[15:L4] + b"\1\1\1\0" + frame[L4:]
    frame = bytearray(frame)
    struct.pack_into("!H", frame, 16, len(frame) - IP)
    struct.pack_into("!H", frame, 24, 0)
    struct.pack_into("!H", frame, 24, internet_checksum(bytes(frame[IP : L4 + 4])))
    return bytes(frame)


def other_protocol(generator, frame):
    return put_right(frame[:23] + bytes([generator.choice((ICMP, 47, 50, 132))]) + frame[24:])


def urgent_flags(generator, frame):
    if frame[23] != TCP:
        return noise(generator, frame)
    return put_right(frame[:47] + bytes([frame[47] | generator.choice((1, 2, 4, 32))]) + frame[48:])


def bad_hello(generator, frame):
    at = payload_at(frame)
    body = generator.randbytes(generator.choice((0, 1, 7, 9, 100)))
    return with_payload(frame, frame[at : at + 1] + bytes([generator.choice((0x22, 0x23)), 0, 0]) + body)


MALFORMED = [noise, noise_in_group, wrong_ip_checksum, flipped, cut, lengthened, other_version, other_kind,
             unknown_codec, unknown_parameter, raw_codec, lying_payload, lying_block, lying_shape, not_zero, lying_mask,
             too_many_records, lying_second_record, fragment, with_options, other_protocol, urgent_flags, bad_hello]


def flipped_and_put_right(generator, frame):
    """Flips 1 to 4 bits of the payload and corrects the checksums. Some results are valid packets with other values."""
    frame = bytearray(frame)
    for _ in range(generator.randint(1, 4)):
        frame[generator.randrange(payload_at(frame), len(frame))] ^= 1 << generator.randrange(8)
    return put_right(frame)


def shuffled(make, frames, count, seed=1):
    """Returns `count` frames. Each is a random frame of `frames` that a random function of `make` has changed."""
    generator = random.Random(seed)
    return [generator.choice(make)(generator, generator.choice(frames)) for _ in range(count)]
