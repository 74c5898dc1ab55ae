"""The attacks: who does what, and by what they are judged."""
import dataclasses


JUDGED = ("latency", "lock-out", "memory")


@dataclasses.dataclass(frozen=True)
class Attack:
    name: str
    about: str
    count: int = 256        # what the mode counts: sessions, mostly
    processes: int = 1
    own_users: bool = False  # each process is another user
    witness: str = "copy"   # whose latency counts
    neighbour: str = ""     # a witness of the attackers' user, whose results must be right
    # Latency, beside that of burners; how long others are locked out; memory. That the daemon lives, ends when it is
    # told to, holds no session that has gone and that every result is right goes without saying.
    judged: tuple = JUDGED
    p50_factor: int = 2     # times that beside burners
    unjudged_why: str = ""     # why not by all of that
    address_space_mb: int = 0  # what the daemon may take beyond its start; 0: no limit
    settings: str = ""      # of the daemon, as lines of its configuration
    kill: bool = False         # attackers of all kinds, killed at any moment
    longer: int = 1            # times the seconds that others are measured


ATTACKS = (
    Attack("refuse", "floods of ops that are refused"),
    Attack("offers", "parts of collectives whose other rank never comes", witness="reduce"),
    Attack("silent", "connections that never say Hello", count=128, processes=2),
    Attack("blocked", "queues full of ops that wait for what nobody signals"),
    Attack("kinds", "floods of refused ops, each of another unknown kind"),
    # What it has running when an op of the high class comes is waited for, as on a GPU: 32 copies of some 10 us.
    Attack("flood", "floods of copies, which are as they should be, of 64 sessions", count=64, witness="gemm", p50_factor=4),
    Attack("opens", "refused parts of collectives of 255 ranks", witness="reduce"),
    Attack("mappings", "four users with 16,384 buffers each", count=16_384, processes=4,
           own_users=True),
    Attack("wakes", "floods of refused ops on timelines that threads claim to sleep on"),
    Attack("hold", "16,384 buffers held, and requests from 64 sessions", count=16_384),
    Attack("exhaust", "all the address space taken, then everything else asked for", address_space_mb=512, judged=(),
           unjudged_why="while there is no memory every client is refused, on purpose; it is judged by the daemon's "
                        "surviving and serving afterwards"),
    Attack("churn", "sessions opened and left with ops in flight, as fast as it goes", count=1, processes=2),
    Attack("handles", "buffers registered and released, as fast as it goes"),
    Attack("seal", "buffers sealed that may not be, or are written meanwhile; equal ones, and some of equal digests",
           count=64, processes=2, neighbour="sealed", settings="max_buffers_per_uid = 4096\n"),
    Attack("kill", "clients of all kinds, killed at any moment", kill=True, longer=5, witness="reduce",
           judged=("memory",),
           unjudged_why="starting and killing twenty processes a second takes the CPUs more than what they do to the daemon"),
)
BY_NAME = {attack.name: attack for attack in ATTACKS}
