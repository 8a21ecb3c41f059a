package store

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"meridian/adapters/mooncake/rpc"
	"meridian/adapters/mooncake/structpack"
)

// UUID is how Mooncake numbers clients and segments: two 64-bit numbers.
type UUID struct{ High, Low uint64 }

// NewUUID is a random one.
func NewUUID() UUID {
	var b [16]byte
	rand.Read(b[:]) // does not fail
	return UUID{High: binary.LittleEndian.Uint64(b[:]), Low: binary.LittleEndian.Uint64(b[8:])}
}

func (u UUID) String() string { return fmt.Sprintf("%d-%d", u.High, u.Low) }

// Segment is memory that a node offers to the master.
type Segment struct {
	ID       UUID
	Name     string
	Base     uint64
	Size     uint64
	Endpoint string
	Protocol string
	HostID   string
}

// replicateConfig says how an object is kept. The zero value with Replicas 1 is
// Mooncake's own default.
type replicateConfig struct {
	Replicas             uint64
	NoFReplicas          uint64
	DFSReplicas          uint64
	SoftPinAction        uint8
	SoftPinTTL           *uint64
	HardPin              bool
	PreferredSegments    []string
	PreferredSegment     string
	PreferredNoFSegments []string
	SameNode             bool
	DataType             uint8
	HostID               string
	GroupIDs             *[]string
}

// buffer is where in a segment a replica lies.
type buffer struct {
	Size     uint64
	Address  uint64
	Protocol string
	Endpoint string
}

// memoryReplica, noFReplica, diskReplica, localDiskReplica and dfsReplica are the
// kinds of replica. Only the first can be read by the transfer engine.
type (
	memoryReplica struct{ Buffer buffer }
	noFReplica    struct{ Buffer buffer }
	diskReplica   struct {
		Path string
		Size uint64
	}
	localDiskReplica struct {
		Client   UUID
		Size     uint64
		Endpoint string
	}
	dfsReplica struct {
		Path   string
		Size   uint64
		Offset uint64
		Length uint64
		Status int32
	}
)

type replicaKind struct {
	structpack.Variant
	Memory    *memoryReplica
	NoF       *noFReplica
	Disk      *diskReplica
	LocalDisk *localDiskReplica
	DFS       *dfsReplica
}

// Replica states.
const (
	replicaProcessing = 2
	replicaComplete   = 3
)

type replica struct {
	ID     uint64
	Kind   replicaKind
	Status int32
}

// replicas is an object's replicas and the lease that comes with the question.
type replicas struct {
	List     []replica
	LeaseMS  uint64
	Checksum *uint64 // CRC-64, where the writer gave one
}

type objectMeta struct {
	Key      string
	Checksum *uint64
}

// Which replicas an end or a revocation means.
const allReplicas = 4

// Status that Ping returns.
const (
	statusOK          = 1
	statusNeedRemount = 2
)

type pong struct {
	View   int64
	Status int32
}

type (
	keyQuery struct{ Key, Tenant string }
	keys     struct {
		Keys   []string
		Tenant string
	}
	putStart struct {
		Client UUID
		Key    string
		Length uint64
		Config replicateConfig
		Tenant string
	}
	putEnd struct {
		Client UUID
		Meta   objectMeta
		Which  int32
		Tenant string
	}
	putRevoke struct {
		Client UUID
		Key    string
		Which  int32
		Tenant string
	}
	batchPutStart struct {
		Client  UUID
		Keys    []string
		Lengths []uint64
		Config  replicateConfig
		Tenant  string
	}
	batchPutEnd struct {
		Client UUID
		Metas  []objectMeta
		Which  int32
		Tenant string
	}
	batchPutRevoke struct {
		Client UUID
		Keys   []string
		Which  int32
		Tenant string
	}
	remove struct {
		Key    string
		Force  bool
		Tenant string
	}
	batchRemove struct {
		Keys   []string
		Force  bool
		Tenant string
	}
	removeAll struct {
		Force  bool
		Tenant string
	}
	remount struct {
		Segments []Segment
		Client   UUID
	}
	unmount         struct{ Segment, Client UUID }
	gracefulUnmount struct {
		Segment, Client UUID
		GraceMS         uint64
	}
)

// expected shortens what nearly every function answers.
type expected[T any] = structpack.Expected[T]

// scope is in front of the name of each function of the master.
const scope = "mooncake::WrappedMasterService::"

// The functions of the master that are called here.
var (
	fnServiceReady    = rpc.Plain[expected[string]](scope, "ServiceReady")
	fnPing            = rpc.One[UUID, expected[pong]](scope, "Ping")
	fnExist           = rpc.Many[keyQuery, expected[bool]](scope, "ExistKey")
	fnBatchExist      = rpc.Many[keys, []expected[bool]](scope, "BatchExistKey")
	fnReplicas        = rpc.Many[keyQuery, expected[replicas]](scope, "GetReplicaList")
	fnBatchReplicas   = rpc.Many[keys, []expected[replicas]](scope, "BatchGetReplicaList")
	fnPutStart        = rpc.Many[putStart, expected[[]replica]](scope, "PutStart")
	fnPutEnd          = rpc.Many[putEnd, expected[structpack.Void]](scope, "PutEnd")
	fnPutRevoke       = rpc.Many[putRevoke, expected[structpack.Void]](scope, "PutRevoke")
	fnBatchPutStart   = rpc.Many[batchPutStart, []expected[[]replica]](scope, "BatchPutStart")
	fnBatchPutEnd     = rpc.Many[batchPutEnd, []expected[structpack.Void]](scope, "BatchPutEnd")
	fnBatchPutRevoke  = rpc.Many[batchPutRevoke, []expected[structpack.Void]](scope, "BatchPutRevoke")
	fnRemove          = rpc.Many[remove, expected[structpack.Void]](scope, "Remove")
	fnBatchRemove     = rpc.Many[batchRemove, []expected[structpack.Void]](scope, "BatchRemove")
	fnRemoveAll       = rpc.Many[removeAll, int64](scope, "RemoveAll")
	fnRemount         = rpc.Many[remount, expected[structpack.Void]](scope, "ReMountSegment")
	fnUnmount         = rpc.Many[unmount, expected[structpack.Void]](scope, "UnmountSegment")
	fnGracefulUnmount = rpc.Many[gracefulUnmount, expected[structpack.Void]](scope, "GracefulUnmountSegment")
	fnSegmentStatus   = rpc.One[UUID, expected[int32]](scope, "QuerySegmentStatusById")
)
