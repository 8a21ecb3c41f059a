"""LMCache's remote backend with its connector to a Mooncake Store, as its engine makes
them: lmcache_backend.py MASTER META put|get CHUNKS. It puts chunks of KV, or reads them and
compares each byte, and prints how many were right."""
import asyncio
import sys
import threading

import torch
from lmcache.utils import CacheEngineKey
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.memory_management import MemoryFormat
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
from lmcache.v1.storage_backend.remote_backend import RemoteBackend

master, meta, do, chunks = sys.argv[1], sys.argv[2] == "true", sys.argv[3], int(sys.argv[4])
config = LMCacheEngineConfig.from_dict({
    "chunk_size": 256, "local_cpu": False, "max_local_cpu_size": 0.25, "remote_url": "mooncakestore://" + master + "/", "remote_serde": "naive",
    "extra_config": {
        "local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "mooncake_master_server_addr": master, "protocol": "tcp",
        "global_segment_size": 0, "local_buffer_size": 64 << 20, "save_chunk_meta": meta, "transfer_timeout": 10,
    },
})
about = LMCacheMetadata(
    model_name="m", world_size=1, local_world_size=1, worker_id=0, local_worker_id=0, kv_dtype=torch.bfloat16, kv_shape=(4, 2, 256, 8, 64), chunk_size=256)
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
local = LocalCPUBackend(config, about, dst_device="cpu")
remote = RemoteBackend(config, about, loop, local, dst_device="cpu")
keys = [CacheEngineKey("m", 1, 0, 1000 + i, torch.bfloat16) for i in range(chunks)]
shape, dtype = about.get_shapes()[0], about.get_dtypes()[0]


def content(i):
    return torch.randint(0, 255, (shape.numel() * dtype.itemsize,), dtype=torch.uint8, generator=torch.Generator().manual_seed(i))


right = 0
if do == "put":
    done = [threading.Event() for _ in keys]
    objects = []
    for i in range(chunks):
        obj = local.allocate(shape, dtype, MemoryFormat.KV_2LTD)
        obj.raw_data.view(torch.uint8).flatten()[:] = content(i)
        objects.append(obj)
    remote.batched_submit_put_task(keys, objects, on_complete_callback=lambda key: done[keys.index(key)].set())
    right = sum(d.wait(60) and remote.contains(k) for d, k in zip(done, keys))
else:
    for i, obj in enumerate(remote.batched_get_blocking(keys)):
        right += obj is not None and torch.equal(obj.raw_data.view(torch.uint8).flatten(), content(i))
print("right", right, flush=True)
remote.close()
