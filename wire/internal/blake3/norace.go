//go:build !race

package blake3

func raceRead([]byte) {}

func raceCopy(_, _ []byte) {}
