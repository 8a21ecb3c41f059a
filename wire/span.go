package wire

// Span is a run of bytes inside a window: memory that somebody else may write.
type Span struct{ Off, Len uint64 }
