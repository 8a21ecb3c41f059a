package control

// Limits. Both sides refuse what is beyond.
const (
	MaxFrame    = 1 << 20   // bytes of a frame behind its length
	MaxName     = 256       // bytes of an agent's name
	MaxText     = 16 << 10  // bytes of an error, a path, a parameter
	MaxNotif    = 32 << 10  // bytes of a notification
	MaxMetadata = 512 << 10 // bytes of an agent's metadata
	MaxParams   = 64        // of a backend
	MaxParts    = 1024      // of one transfer
	MaxList     = 256       // of names, of GPUs
)

// Message is one of the messages below.
type Message interface {
	kind() byte
	fields(c *coder)
}

// Req is the number of a request, and of its answer.
type Req uint64

// Number is where a message has its number.
func (r *Req) Number() *Req { return r }

// Numbered is a request or an answer.
type Numbered interface {
	Message
	Number() *Req
}

// Pair is a parameter of a backend.
type Pair struct{ Key, Value string }

// Part is a range of a window, and one of equal length in the memory of a peer.
type Part struct {
	Off  uint64 // in the window
	Addr uint64 // in the peer
	Len  uint64
}

// GPU is one that the driver knows.
type GPU struct {
	PCI   string // its address, as sysfs writes it: 0000:3b:00.0
	Name  string
	UUID  string
	Bytes uint64 // of its memory; 0: it has none of its own, or does not tell
}

// The daemon's requests.
type (
	// Start opens the library, and makes the agent and its backend. It comes first, and
	// once.
	Start struct {
		Req
		Library string // where it is; "": where it usually is
		Agent   string // the name of the agent to make
		Backend string // the name of its plugin
		Params  []Pair
	}
	// Map maps the window that comes as a descriptor, and registers it.
	Map struct {
		Req
		Window uint32 // its number from now on
		Bytes  uint64
		// Staging says that it is for transfers of the helper. Peers get no key of it, and
		// no transfer of the helper uses another window.
		Staging bool
	}
	// Metadata asks for the agent's metadata, with the windows for peers that are mapped now.
	Metadata struct{ Req }
	// Load makes a peer known by its metadata.
	Load struct {
		Req
		Blob []byte
	}
	// Forget makes a peer unknown.
	Forget struct {
		Req
		Peer string
	}
	// Move reads or writes. The peer gets Notif, where there is one, when all bytes are
	// in place.
	Move struct {
		Req
		Write  bool
		Window uint32 // a staging
		Peer   string
		Notif  []byte
		Parts  []Part
	}
	// Notify sends a notification.
	Notify struct {
		Req
		Peer string
		Text []byte
	}
	// Ping asks for a sign of life of the loop that calls the library.
	Ping struct{ Req }
	// GPUs asks for those of NVIDIA's driver. It comes to a helper without Start only,
	// since a driver may hang.
	GPUs struct{ Req }
)

// The helper's answers, and what comes by itself.
type (
	// Started answers Start.
	Started struct {
		Req
		Library string // its path
		Plugins []string
	}
	// Mapped answers Map.
	Mapped struct {
		Req
		Addr uint64 // of the window in the helper, which peers use
	}
	// Blob answers Metadata.
	Blob struct {
		Req
		Blob []byte
	}
	// Loaded answers Load.
	Loaded struct {
		Req
		Peer string // its name, as its metadata has it
	}
	// Done answers the others.
	Done struct{ Req }
	// Failed answers any request.
	Failed struct {
		Req
		Stays bool // another attempt would meet it again
		// Quiet says that nothing was begun, so that no memory is touched.
		Quiet bool
		Text  string
	}
	// Uses says which transports UCX has chosen for the reads and the writes of a peer,
	// when that changes. "" is one that is not known; see the helper's None and Emulated.
	Uses struct{ Peer, Read, Write string }
	// Notified is a notification that came from a peer, by the name that it says.
	Notified struct {
		Peer string
		Text []byte
	}
	// GPUList answers GPUs.
	GPUList struct {
		Req
		Driver string // its version
		GPUs   []GPU
	}
)

// The kinds, in the frame. 0 is none.
const (
	kindStart = iota + 1
	kindMap
	kindMetadata
	kindLoad
	kindForget
	kindMove
	kindNotify
	kindPing
	kindStarted
	kindMapped
	kindBlob
	kindLoaded
	kindDone
	kindFailed
	kindNotified
	kindGPUs
	kindGPUList
	kindUses
)

// made makes an empty message of a kind; nil: there is none.
func made(kind byte) Message {
	switch kind {
	case kindStart:
		return &Start{}
	case kindMap:
		return &Map{}
	case kindMetadata:
		return &Metadata{}
	case kindLoad:
		return &Load{}
	case kindForget:
		return &Forget{}
	case kindMove:
		return &Move{}
	case kindNotify:
		return &Notify{}
	case kindPing:
		return &Ping{}
	case kindStarted:
		return &Started{}
	case kindMapped:
		return &Mapped{}
	case kindBlob:
		return &Blob{}
	case kindLoaded:
		return &Loaded{}
	case kindDone:
		return &Done{}
	case kindFailed:
		return &Failed{}
	case kindUses:
		return &Uses{}
	case kindNotified:
		return &Notified{}
	case kindGPUs:
		return &GPUs{}
	case kindGPUList:
		return &GPUList{}
	}
	return nil
}

func (*Start) kind() byte    { return kindStart }
func (*Map) kind() byte      { return kindMap }
func (*Metadata) kind() byte { return kindMetadata }
func (*Load) kind() byte     { return kindLoad }
func (*Forget) kind() byte   { return kindForget }
func (*Move) kind() byte     { return kindMove }
func (*Notify) kind() byte   { return kindNotify }
func (*Ping) kind() byte     { return kindPing }
func (*Started) kind() byte  { return kindStarted }
func (*Mapped) kind() byte   { return kindMapped }
func (*Blob) kind() byte     { return kindBlob }
func (*Loaded) kind() byte   { return kindLoaded }
func (*Done) kind() byte     { return kindDone }
func (*Failed) kind() byte   { return kindFailed }
func (*Notified) kind() byte { return kindNotified }
func (*GPUs) kind() byte     { return kindGPUs }
func (*GPUList) kind() byte  { return kindGPUList }
func (*Uses) kind() byte     { return kindUses }

func (m *Start) fields(c *coder) {
	c.u64((*uint64)(&m.Req))
	c.text(&m.Library, MaxText)
	c.name(&m.Agent)
	c.name(&m.Backend)
	list(c, &m.Params, MaxParams, func(p *Pair) {
		c.text(&p.Key, MaxText)
		c.text(&p.Value, MaxText)
	})
}

func (m *Map) fields(c *coder) {
	c.u64((*uint64)(&m.Req))
	c.u32(&m.Window)
	c.u64(&m.Bytes)
	c.flag(&m.Staging)
}

func (m *Metadata) fields(c *coder) { c.u64((*uint64)(&m.Req)) }

func (m *Load) fields(c *coder) {
	c.u64((*uint64)(&m.Req))
	c.bytes(&m.Blob, MaxMetadata)
}

func (m *Forget) fields(c *coder) {
	c.u64((*uint64)(&m.Req))
	c.name(&m.Peer)
}

func (m *Move) fields(c *coder) {
	c.u64((*uint64)(&m.Req))
	c.flag(&m.Write)
	c.u32(&m.Window)
	c.name(&m.Peer)
	c.bytes(&m.Notif, MaxNotif)
	list(c, &m.Parts, MaxParts, func(p *Part) {
		c.u64(&p.Off)
		c.u64(&p.Addr)
		c.u64(&p.Len)
	})
}

func (m *Notify) fields(c *coder) {
	c.u64((*uint64)(&m.Req))
	c.name(&m.Peer)
	c.bytes(&m.Text, MaxNotif)
}

func (m *Ping) fields(c *coder) { c.u64((*uint64)(&m.Req)) }

func (m *Started) fields(c *coder) {
	c.u64((*uint64)(&m.Req))
	c.text(&m.Library, MaxText)
	list(c, &m.Plugins, MaxList, func(s *string) { c.text(s, MaxName) })
}

func (m *Mapped) fields(c *coder) {
	c.u64((*uint64)(&m.Req))
	c.u64(&m.Addr)
}

func (m *Blob) fields(c *coder) {
	c.u64((*uint64)(&m.Req))
	c.bytes(&m.Blob, MaxMetadata)
}

func (m *Loaded) fields(c *coder) {
	c.u64((*uint64)(&m.Req))
	c.name(&m.Peer)
}

func (m *Done) fields(c *coder) { c.u64((*uint64)(&m.Req)) }

func (m *Failed) fields(c *coder) {
	c.u64((*uint64)(&m.Req))
	c.flag(&m.Stays)
	c.flag(&m.Quiet)
	c.text(&m.Text, MaxText)
}

func (m *Notified) fields(c *coder) {
	c.name(&m.Peer)
	c.bytes(&m.Text, MaxNotif)
}

func (m *GPUs) fields(c *coder) { c.u64((*uint64)(&m.Req)) }

func (m *GPUList) fields(c *coder) {
	c.u64((*uint64)(&m.Req))
	c.text(&m.Driver, MaxName)
	list(c, &m.GPUs, MaxList, func(g *GPU) {
		c.text(&g.PCI, MaxName)
		c.text(&g.Name, MaxName)
		c.text(&g.UUID, MaxName)
		c.u64(&g.Bytes)
	})
}

func (m *Uses) fields(c *coder) {
	c.name(&m.Peer)
	c.text(&m.Read, MaxName)
	c.text(&m.Write, MaxName)
}
