"""The Mooncake storage of SGLang's HiCache, over a pool of host memory as it lays its pages
out: hicache_backend.py MASTER put|get PAGES. It puts pages of KV, or reads them and
compares each byte, and prints how many were right."""
import sys

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
from sglang.srt.mem_cache.storage.mooncake_store.mooncake_store import MooncakeStore

master, do, pages = sys.argv[1], sys.argv[2], int(sys.argv[3])
TOKENS, BYTES = 64, 1 << 20  # of a page, and of its keys or values


class Pool:
    """Pages one after the other, keys of each before its values (layout page_first)."""

    page_size = TOKENS
    kv_buffer = torch.zeros(pages, 2, BYTES, dtype=torch.uint8)

    def get_ksize_per_token(self):
        return BYTES // TOKENS

    def get_hybrid_pool_buffer(self):
        return [self.kv_buffer]

    def get_page_buffer_meta(self, indices):
        at = [self.kv_buffer[int(i) // TOKENS, half].data_ptr() for i in indices[::TOKENS] for half in (0, 1)]
        return at, [BYTES] * len(at)


def content(i):
    return torch.randint(0, 255, (2, BYTES), dtype=torch.uint8, generator=torch.Generator().manual_seed(i))


store = MooncakeStore(HiCacheStorageConfig(
    tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1, is_mla_model=False, enable_storage_metrics=False,
    is_page_first_layout=True, model_name="m",
    extra_config={
        "local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "global_segment_size": 0, "protocol": "tcp", "device_name": "",
        "master_server_address": master, "check_server": False,
    }), Pool())
store.register_mem_pool_host(Pool())
keys, tokens = ["page%d" % i for i in range(pages)], torch.arange(pages * TOKENS)
if do == "put":
    for i in range(pages):
        Pool.kv_buffer[i] = content(i)
    right = sum(store.batch_set_v1(keys, tokens))
else:
    right = store.batch_exists(keys)
    if right == pages:
        right = sum(ok and torch.equal(Pool.kv_buffer[i], content(i)) for i, ok in enumerate(store.batch_get_v1(keys, tokens)))
print("right", right, flush=True)
