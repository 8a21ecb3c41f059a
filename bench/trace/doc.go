// Package trace reads request traces of LLM serving and says what a cache of
// a given size could have hit at best.
//
// The conversation and the synthetic trace of Mooncake (FAST '25) are part of the
// package, byte for byte as published, compressed; SOURCE.md beside them names where
// they come from and their licence. The package may import the standard library only.
package trace
