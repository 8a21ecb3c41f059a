package engine_test

import (
	"encoding/binary"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/agent/client"
	"meridian/wire"
)

// benchBlock is a block's size, benchBatch how many a step saves.
const (
	benchBlock = 1 << 20
	benchBatch = 16
	// benchPiece is what lies together in an engine's KV cache: one layer's K or V of a
	// block of 16 tokens with 4 heads of 128 in bf16.
	benchPiece = 16 << 10
)

// kvCache is memory in which the pieces of a block lie apart from each other.
type kvCache []byte

func newKVCache() kvCache {
	k := make(kvCache, 256<<20)
	for at := 0; at < len(k); at += 8 {
		binary.LittleEndian.PutUint64(k[at:], uint64(at)*0x9E3779B97F4A7C15)
	}
	return k
}

// gather copies the pieces of block i to dst.
func (k kvCache) gather(i int, dst []byte) {
	layers := len(dst) / benchPiece
	blocks := len(k) / len(dst)
	for l := range layers {
		copy(dst[l*benchPiece:][:benchPiece], k[(l*blocks+i%blocks)*benchPiece:])
	}
}

// benchStore has an engine save steps of blocks that a daemon in another process keeps.
func benchStore(b *testing.B, save func(e *client.Engine, list []client.Block, kv kvCache, at int) []error) {
	path := filepath.Join(tempDir(b), "s")
	d := spawn(b, "daemon", path, strconv.Itoa(256<<20))
	d.expect(b, "ready")
	e, err := client.DialEngine(ctx, path, client.Options{Group: &client.Group{Agent: [16]byte{9}, Inc: 1}})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	ns, err := e.Open(ctx, manifest("acme"))
	if err != nil {
		b.Fatal(err)
	}
	kv, list := newKVCache(), make([]client.Block, benchBatch)
	step := func(n int) {
		for i := range list {
			list[i] = client.Block{NS: ns, Key: wire.KeyOf(manifest("acme").Namespace(), binary.LittleEndian.AppendUint64(nil, uint64(n+i))), Tier: wire.OutputCritical, Len: benchBlock}
		}
		for _, err := range save(e, list, kv, n) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	at := 0
	for ; at < 512; at += benchBatch { // every page has been touched
		step(at)
	}
	b.SetBytes(benchBatch * benchBlock)
	before := ownTime(b)
	for b.Loop() {
		step(at)
		at += benchBatch
	}
	b.ReportMetric(float64((ownTime(b)-before).Microseconds())/float64(b.N*benchBatch), "engine-µs/block")
}

// ownTime is the processor time of this process, which is the engine's.
func ownTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkPutByCopy gathers an engine's KV into a buffer, which Put copies into the ring:
// all blocks of a step at once, or each when it is full.
func BenchmarkPutByCopy(b *testing.B) {
	b.Run("each", func(b *testing.B) {
		buf := make([]byte, benchBlock)
		benchStore(b, func(e *client.Engine, list []client.Block, kv kvCache, at int) (errs []error) {
			for i := range list {
				list[i].Body = buf
				kv.gather(at+i, buf)
				errs = append(errs, e.Put(ctx, list[i:i+1])...)
			}
			return errs
		})
	})
	b.Run("all", func(b *testing.B) { putAllByCopy(b) })
}

func putAllByCopy(b *testing.B) {
	buf := make([]byte, benchBatch*benchBlock)
	benchStore(b, func(e *client.Engine, list []client.Block, kv kvCache, at int) []error {
		for i := range list {
			list[i].Body = buf[i*benchBlock:][:benchBlock]
			kv.gather(at+i, list[i].Body)
		}
		return e.Put(ctx, list)
	})
}

// BenchmarkPutInPlace gathers it into the ring, where room was reserved before.
func BenchmarkPutInPlace(b *testing.B) {
	benchStore(b, func(e *client.Engine, list []client.Block, kv kvCache, at int) []error {
		return e.PutInPlace(ctx, list, func(i int, dst []byte) error {
			kv.gather(at+i, dst)
			return nil
		})
	})
}
