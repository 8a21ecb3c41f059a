package main

// switchPath is the import path, below the module's, of the switch in the copy.
const switchPath = "internal/mutationswitch"

// switchSource is the package that the rewritten sources call.
const switchSource = `// Package mutationswitch turns one change of the sources on.
package mutationswitch

import (
	"os"
	"strconv"
	"sync"
)

var (
	on, _   = strconv.Atoi(os.Getenv("MUTATION_ON"))
	reached = os.Getenv("MUTATION_REACHED")
	mu      sync.Mutex
	seen    = map[int]bool{}
	file    *os.File
)

// On reports whether change n is on.
func On(n int) bool {
	if reached != "" {
		note(n)
	}
	return n == on
}

func note(n int) {
	mu.Lock()
	defer mu.Unlock()
	if seen[n] {
		return
	}
	seen[n] = true
	if file == nil {
		var err error
		if file, err = os.OpenFile(reached, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
			panic(err)
		}
	}
	if _, err := file.WriteString(strconv.Itoa(n) + "\n"); err != nil {
		panic(err)
	}
}

type integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

type number interface {
	integer | ~float32 | ~float64
}

func Add[T number](n int, a, b T) T {
	if On(n) {
		return a - b
	}
	return a + b
}

func Sub[T number](n int, a, b T) T {
	if On(n) {
		return a + b
	}
	return a - b
}

func Mul[T number](n int, a, b T) T {
	if On(n) {
		return a / b
	}
	return a * b
}

func Div[T number](n int, a, b T) T {
	if On(n) {
		return a * b
	}
	return a / b
}

func Rem[T integer](n int, a, b T) T {
	if On(n) {
		return a * b
	}
	return a % b
}

func Neg[T number](n int, a T) T {
	if On(n) {
		return a
	}
	return -a
}

func Inc[T number](n int, a *T) {
	if On(n) {
		*a--
		return
	}
	*a++
}

func Dec[T number](n int, a *T) {
	if On(n) {
		*a++
		return
	}
	*a--
}
`
