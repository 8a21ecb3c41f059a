package metadata

// What a metadata server is asked by.
const (
	HTTPPath = "/metadata" // of the URL; the query has the key

	// EpochHeader carries an owner's epoch to a server that knows of epochs. Others
	// do not look at it.
	EpochHeader = "Meridian-Epoch"
)
