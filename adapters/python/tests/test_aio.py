"""The asyncio face, with a real daemon."""
import asyncio
import unittest

import numpy as np

from meridian import COMPLETED, Code, Group, Lease, OpenError, RequestError, aio

from .real import BLOCK, SOCKET, bodies, hashes, manifest


class Asyncio(unittest.TestCase):
    def run_with(self, client, **more):
        async def whole():
            async with await aio.dial(SOCKET, **more) as e:
                m = manifest()
                return await asyncio.wait_for(client(e, m, await e.open(m)), 60)
        return asyncio.run(whole())

    def test_blocks(self):
        async def client(e, m, space):
            keys, kv = m.keys(hashes(16)), bodies(16)
            staged = await e.stage(16, BLOCK)
            staged.data[:] = kv
            self.assertTrue((await e.put(space, keys, staged)).kept)
            self.assertEqual((await e.has(space, keys))["status"].tolist(), [0] * 16)
            with await e.acquire(space, keys) as lease:
                out = np.zeros_like(kv)
                self.assertEqual(lease.copy_into(out).tolist(), [0] * 16)
            self.assertTrue((out == kv).all())
            with self.assertRaises(OpenError):
                await e.open(manifest(tenant="stranger"))
        self.run_with(client)

    def test_many_at_once(self):
        async def client(e, m, space):
            keys = m.keys(hashes(1024))
            tables = await asyncio.gather(*(e.has(space, keys) for _ in range(64)))  # more than the socket holds
            self.assertEqual({s for t in tables for s in t["status"]}, {Code.ABSENT})
            self.assertEqual(e.engine._sock.unsent, 0)
        self.run_with(client)

    def test_advice_comes_to_a_coroutine(self):
        async def client(e, m, space):
            async def first():
                async for phase in e.phases():
                    if phase.kind == COMPLETED:
                        return phase.req
            waiting = asyncio.create_task(first())
            req = await e.begin([1, 2], model="thinker")
            e.tokens([req], [1], [5])
            await e.finish(req)
            self.assertEqual(await waiting, req)
        self.run_with(client)

    def test_a_coroutine_that_is_cancelled_cancels_its_request(self):
        async def client(e, m, space):
            task = asyncio.create_task(e.acquire(space, m.keys(hashes(1)), fetch=True))
            await asyncio.sleep(0)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            await e.finish(1)
            while e.engine._calls:
                await e._news(10, "test")
        self.run_with(client)

    def lost(self, e, lease, keys, places):
        """The daemon does not know a lease any more."""
        with self.assertRaises(RequestError) as raised:
            Lease(e.engine, lease, keys, places, "", 0).renew()
        self.assertEqual(raised.exception.code, Code.LEASE_LOST)

    async def put(self, e, space, keys):
        staged = await e.stage(len(keys), BLOCK)
        staged.data[:] = bodies(len(keys))
        self.assertTrue((await e.put(space, keys, staged)).kept)

    def test_a_lease_that_comes_with_the_cancellation_is_given_back(self):
        async def client(e, m, space):
            keys = m.keys(hashes(1))
            await self.put(e, space, keys)
            task = asyncio.create_task(e.acquire(space, keys, hold=True))
            await asyncio.sleep(0)
            pending, = e.engine._calls.values()
            while not pending.done:
                e.engine.poll()
            task.cancel()
            try:
                (await task).release()  # as Python before 3.12 has it
            except asyncio.CancelledError:
                pass
            self.lost(e, pending.answer[0], keys, pending.answer[1])
        self.run_with(client)

    def test_parts_that_nobody_took_are_given_back(self):
        async def client(e, m, space):
            keys = m.keys(hashes(3))
            await self.put(e, space, keys[:1])
            parts = e.load(space, keys, wait=True, hold=True)
            one = await anext(parts)
            load, = e.engine._calls.values()
            for i in (1, 2):
                await self.put(e, space, keys[i:i + 1])
                while len(load._parts) < i:
                    e.engine.poll()
            while not load.done:
                e.engine.poll()
            third = load._parts[1]
            two = await anext(parts)
            await parts.aclose()
            self.assertEqual((one.first, two.first, third.first), (0, 1, 2))
            one.renew()  # what was taken stays
            two.renew()
            self.lost(e, third.id, third.keys, third.places)
            one.release()
            two.release()
        self.run_with(client, group=Group.new())

    def test_a_ring_that_cannot_be(self):
        async def client(e, m, space):
            with self.assertRaises(RequestError) as raised:
                await e.stage(1, 1 << 40)
            self.assertIn(raised.exception.code, (Code.TOO_LARGE, Code.BUSY))
        self.run_with(client)

    def test_the_end_of_the_connection_ends_everything(self):
        async def client(e, m, space):
            async def all_phases():
                return [p async for p in e.phases()]
            waiting = asyncio.create_task(all_phases())
            await asyncio.sleep(0)
            await e.close()
            self.assertEqual(await waiting, [])
        self.run_with(client)
