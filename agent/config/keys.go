package config

// What an opener declares the keys of its fabric with. See NewFabricKind.

// Field is one key of a table whose values live in an S.
type Field[S any] = field[S]

// Kind is one type of value: how it is written and read.
type Kind[T any] = kind[T]

// Rule is the range of a value. The zero Rule allows everything.
type Rule[T any] = rule[T]

// The types of values.
var (
	Words      = words
	Secrets    = secrets
	Paths      = Kind[string]{"path", words.toml, words.text, words.show} // relative ones of the file are from its folder
	Sizes      = sizes                                                    // bytes
	Integers   = integers
	AutoCounts = autoCount // at least 0, or Auto
	Booleans   = booleans
	Durations  = durations
	Lists      = strs
)

// Key declares a key: its name, where its value lives, its type, default and range,
// and what it means.
func Key[S, T any](name string, at func(*S) *T, k Kind[T], def T, r Rule[T], doc string) Field[S] {
	return key(name, at, k, def, r, doc)
}

// NewRule is a range in words, and as a test; without one it only describes what is
// tested elsewhere.
func NewRule[T any](words string, ok func(T) bool) Rule[T] { return rule[T]{words, ok} }

// AgentNames is the range of agent.name.
var AgentNames = nameRule

// Hex is the range of n bytes in hexadecimal, and of nothing.
func Hex(n int) Rule[string] { return hexID(n) }

// Free is the range of everything.
func Free[T any]() Rule[T] { return free[T]() }

// Within is the range of numbers and durations between two, with both.
func Within[T ~int | ~uint32 | ~int64](least, most T) Rule[T] { return between(least, most) }

// BytesWithin is the range of sizes between two, with both.
func BytesWithin(least, most uint64) Rule[uint64] { return bytesBetween(least, most) }
