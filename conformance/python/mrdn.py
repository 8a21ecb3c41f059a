"""MRDN v1 from docs/spec/mrdn-v1.md: BLAKE3, header, manifest, key. Standard library only."""
import struct

IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
ORDER = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
MIX = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15), (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
CHUNK_START, CHUNK_END, PARENT, ROOT = 1, 2, 4, 8
WORD = 0xFFFFFFFF


def _compress(cv, words, counter, size, flags):
    v = list(cv) + list(IV[:4]) + [counter & WORD, counter >> 32, size, flags]
    m = list(words)
    for rounds in range(7):
        for i, (a, b, c, d) in enumerate(MIX):
            for x, (r1, r2) in ((m[2 * i], (16, 12)), (m[2 * i + 1], (8, 7))):
                v[a] = v[a] + v[b] + x & WORD
                t = v[d] ^ v[a]
                v[d] = (t >> r1 | t << 32 - r1) & WORD
                v[c] = v[c] + v[d] & WORD
                t = v[b] ^ v[c]
                v[b] = (t >> r2 | t << 32 - r2) & WORD
        m = [m[i] for i in ORDER]
    return [v[i] ^ v[i + 8] for i in range(8)]


def _chunk(data, counter, root):
    cv, last = IV, max(len(data) - 1, 0) // 64
    for i in range(last + 1):
        block = data[64 * i:64 * i + 64]
        flags = (CHUNK_START if i == 0 else 0) | (CHUNK_END | root if i == last else 0)
        cv = _compress(cv, struct.unpack("<16I", block.ljust(64, b"\0")), counter, len(block), flags)
    return cv


def _tree(data, counter, root):
    if len(data) <= 1024:
        return _chunk(data, counter, root)
    left = 1024 << (((len(data) - 1) // 1024).bit_length() - 1)
    words = _tree(data[:left], counter, 0) + _tree(data[left:], counter + left // 1024, 0)
    return _compress(IV, words, 0, 64, PARENT | root)


def blake3(data):
    return struct.pack("<8I", *_tree(bytes(data), 0, ROOT))


def header(body, tier=0):
    return struct.pack("<4sIIB3x", b"MRDN", 1, len(body), tier) + blake3(body)[:16]


def payload(b):
    """Tier and body of a payload that is right; ValueError says what is not."""
    if len(b) < 32:
        raise ValueError("%d bytes, a header has 32" % len(b))
    magic, version, length, tier = struct.unpack("<4sIIB3x", b[:16])
    body = b[32:]
    if magic != b"MRDN" or version != 1 or tier > 2 or b[13:16] != bytes(3):
        raise ValueError("no header: %s" % b[:16].hex())
    if length != len(body):
        raise ValueError("%d bytes of body, the header says %d" % (len(body), length))
    if b[16:32] != blake3(body)[:16]:
        raise ValueError("the body does not match its checksum")
    return tier, body


KEYS = ("block_bytes", "block_tokens", "dcp_rank", "dcp_size", "dtype", "hash_scheme", "head_size", "kv_group", "kv_group_kind", "kv_heads",
        "kv_window", "layer_first", "layer_last", "layout", "model", "pp_rank", "pp_size", "revision", "role", "scale_bytes", "scale_dtype",
        "tenant", "tp_rank", "tp_size")
TEXTS = ("dtype", "hash_scheme", "kv_group_kind", "layout", "model", "revision", "role", "scale_dtype", "tenant")
LEFT_OUT = ("kv_group", "kv_group_kind", "kv_window", "scale_bytes", "scale_dtype")  # where the value is zero or empty


def manifest(**values):
    assert not set(values) - set(KEYS)
    lines = ((k, values.get(k, "" if k in TEXTS else 0)) for k in KEYS)
    return "".join(f"{k}={v}\n" for k, v in lines if v or k not in LEFT_OUT).encode()


def namespace(canonical):
    return blake3(canonical)


def key(ns, engine_hash):
    return blake3(ns + engine_hash)
