// Package trace reads request traces of LLM serving and says what a cache of
// a given size could have hit at best.
//
// The conversation trace of Mooncake (FAST '25) is part of the package, byte
// for byte as published, compressed; SOURCE.md beside it names where it comes
// from and its licence. The package may import the standard library only.
package trace
