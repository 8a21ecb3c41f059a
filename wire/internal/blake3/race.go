//go:build race

package blake3

import (
	"runtime"
	"unsafe"
)

// The race detector sees nothing of what assembly reads and writes.

func raceRead(b []byte) { runtime.RaceReadRange(unsafe.Pointer(unsafe.SliceData(b)), len(b)) }

func raceWrite(b []byte) { runtime.RaceWriteRange(unsafe.Pointer(unsafe.SliceData(b)), len(b)) }
