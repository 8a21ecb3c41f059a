package link

// HalfOpenPerSource is how many connections without a HELLO one source may have.
// Nothing of the old commit reads it.
const HalfOpenPerSource = 16
