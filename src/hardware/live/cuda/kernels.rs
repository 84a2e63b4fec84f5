//! The GPU kernels of probes/kernels/all.cu, and their launches.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::time::Duration;

use cudarc::driver::sys::{CUfunction, CUstream};

use super::gate::Words;
use super::images;
use super::table::Table;
use hardware::{
    BlockTraffic, BlockWork, CHANNEL_ROUNDS, Chase, HardwareError, LOAD_GROUPS, MOST_BLOCKS,
    MOST_LISTS, STORE_GROUPS, Sent, Talk, TalkLimits,
};
use model::live::Phase;

/// Threads per block of the kernels that fill the GPU: enough for full occupancy at the register counts that ptxas
/// reports (57 for the copy kernel on sm_90).
const BLOCK: c_uint = 256;

/// Threads of the kernels that talk or follow pointers.
const WARP: c_uint = 32;

/// Threads per block of the kernel of single links: those of a link are on several multiprocessors.
const THREADS: c_uint = 128;

/// The legacy default stream of the current context.
pub(super) const DEFAULT_STREAM: CUstream = std::ptr::null_mut();

/// The loaded kernels of one device.
pub(super) struct Kernels {
    gate: Function,
    spin: Function,
    work: Function,
    copy: Function,
    fill: Function,
    poison: Function,
    check: Function,
    talk: Function,
    channel: Function,
    chase: Function,
    links: Function,
    multiprocessors: u32,
}

/// Lists of blocks as the kernel has them.
#[repr(C)]
struct Lists {
    first: [c_uint; MOST_LISTS + 1],
    repeats: [c_uint; MOST_LISTS],
    blocks: [c_uint; MOST_BLOCKS],
}

impl Lists {
    /// Returns the lists of this traffic, as far as there is room.
    fn of(traffic: &BlockTraffic) -> Self {
        let mut lists =
            Self { first: [0; MOST_LISTS + 1], repeats: [0; MOST_LISTS], blocks: [0; MOST_BLOCKS] };
        let mut end = 0;
        for (place, list) in traffic.lists.iter().enumerate().take(MOST_LISTS) {
            for (to, block) in lists.blocks[end as usize..].iter_mut().zip(&list.blocks) {
                *to = *block;
                end += 1;
            }
            lists.repeats[place] = list.repeats;
            lists.first[place + 1..].fill(end);
        }
        lists
    }
}

#[derive(Clone, Copy)]
struct Function(CUfunction);

// SAFETY: a function handle is an opaque pointer that the driver allows to be used from any thread
// that has its context current; it is only handed from the loading thread to the worker's.
unsafe impl Send for Function {}

impl Kernels {
    /// Loads the kernels for a compute capability into the current context; native code if the driver loads it.
    ///
    /// # Errors
    ///
    /// The driver refuses the images, or has no compiler for PTX; or the GPU is too old.
    pub(super) fn load(
        table: &Table,
        capability: (u32, u32),
        native: bool,
        multiprocessors: u32,
    ) -> Result<Self, HardwareError> {
        let mut images = images::images(capability, native)?.into_iter().peekable();
        let mut module = std::ptr::null_mut();
        while let Some(image) = images.next() {
            // SAFETY: the image is an ELF file or PTX text with a NUL at its end, which the driver reads during the call.
            let code = unsafe { (table.module_load)(&raw mut module, image) };
            if images.peek().is_none() || !images::is_refused(code) {
                table.made("cuModuleLoadData", code, module)?;
                break;
            }
        }
        let function = |name: &CStr| {
            let mut function = std::ptr::null_mut();
            // SAFETY: the module was loaded above, and the name is NUL-terminated.
            let code =
                unsafe { (table.module_get_function)(&raw mut function, module, name.as_ptr()) };
            table.made("cuModuleGetFunction", code, function).map(Function)
        };
        Ok(Self {
            gate: function(c"peerscope_gate")?,
            spin: function(c"peerscope_spin")?,
            work: function(c"peerscope_work")?,
            copy: function(c"peerscope_copy")?,
            fill: function(c"peerscope_fill")?,
            poison: function(c"peerscope_poison")?,
            check: function(c"peerscope_check")?,
            talk: function(c"peerscope_talk")?,
            channel: function(c"peerscope_channel")?,
            chase: function(c"peerscope_chase")?,
            links: function(c"peerscope_links")?,
            multiprocessors: multiprocessors.max(1),
        })
    }

    /// Writes `generation` to the word `arrived`, and holds the stream until the word `flag` reaches it. After
    /// `timeout_ns` it opens by itself and sets the word `expired`.
    /// The words must be host memory that the device can reach.
    pub(super) fn gate(
        &self,
        table: &Table,
        stream: CUstream,
        mut words: Words,
        mut generation: u32,
        mut timeout_ns: u64,
    ) -> Result<(), HardwareError> {
        let arguments = [
            argument(&mut words.flag),
            argument(&mut generation),
            argument(&mut timeout_ns),
            argument(&mut words.expired),
            argument(&mut words.arrived),
        ];
        launch(table, self.gate, (1, 1), stream, arguments)
    }

    /// Keeps every multiprocessor busy for `duration_ns`.
    pub(super) fn spin(
        &self,
        table: &Table,
        stream: CUstream,
        mut duration_ns: u64,
    ) -> Result<(), HardwareError> {
        launch(
            table,
            self.spin,
            (self.multiprocessors, BLOCK),
            stream,
            [argument(&mut duration_ns)],
        )
    }

    /// Reads 16-byte vectors in so many rounds; with none, multiplies matrices.
    pub(super) fn work(
        &self,
        table: &Table,
        stream: CUstream,
        mut memory: u64,
        bytes: u64,
        mut rounds: u32,
    ) -> Result<(), HardwareError> {
        let (mut vectors, mut limit) = (bytes / 16, 0_u64);
        let arguments = [
            argument(&mut memory),
            argument(&mut vectors),
            argument(&mut rounds),
            argument(&mut limit),
        ];
        launch(table, self.work, (4 * self.multiprocessors, BLOCK), stream, arguments)
    }

    /// Multiplies matrices for `limit` nanoseconds. Two blocks a multiprocessor leave room for kernels that compare; with four,
    /// these waited for its end (2 x H200).
    pub(super) fn heat(
        &self,
        table: &Table,
        stream: CUstream,
        mut limit: u64,
    ) -> Result<(), HardwareError> {
        let (mut none, mut rounds) = (0_u64, u32::MAX - 1);
        let arguments =
            [argument(&mut none), argument(&mut none), argument(&mut rounds), argument(&mut limit)];
        launch(table, self.work, (2 * self.multiprocessors, BLOCK), stream, arguments)
    }

    /// Copies 16-byte vectors, source to destination.
    pub(super) fn copy(
        &self,
        table: &Table,
        stream: CUstream,
        (mut destination, mut source): (u64, u64),
        bytes: u64,
    ) -> Result<(), HardwareError> {
        let mut vectors = bytes / 16;
        // Each block copies tiles of 8 vectors per thread; four blocks per multiprocessor fit.
        let blocks = grid(vectors.div_ceil(8 * u64::from(BLOCK)), 4 * self.multiprocessors);
        let arguments = [argument(&mut destination), argument(&mut source), argument(&mut vectors)];
        launch(table, self.copy, (blocks, BLOCK), stream, arguments)
    }

    /// Writes the pattern of `seed`, on the legacy default stream like the kernels below.
    pub(super) fn fill(
        &self,
        table: &Table,
        words: u64,
        bytes: u64,
        seed: u64,
    ) -> Result<(), HardwareError> {
        self.write(table, self.fill, words, bytes, seed)
    }

    /// Writes poison, which differs from every pattern of the same number.
    pub(super) fn poison(
        &self,
        table: &Table,
        words: u64,
        bytes: u64,
        value: u64,
    ) -> Result<(), HardwareError> {
        self.write(table, self.poison, words, bytes, value)
    }

    fn write(
        &self,
        table: &Table,
        function: Function,
        mut words: u64,
        bytes: u64,
        mut value: u64,
    ) -> Result<(), HardwareError> {
        let mut count = bytes / 8;
        let arguments = [argument(&mut words), argument(&mut count), argument(&mut value)];
        launch(table, function, (8 * self.multiprocessors, BLOCK), DEFAULT_STREAM, arguments)
    }

    /// Runs one side of a talk between the mailboxes at these addresses. Writes what it heard to the words at `heard`.
    pub(super) fn talk(
        &self,
        table: &Table,
        stream: CUstream,
        talk: &Talk,
        [mut mine, mut theirs]: [u64; 2],
        mut heard: u64,
    ) -> Result<(), HardwareError> {
        let (mut role, mut rounds, mut base) = (u32::from(talk.answers), talk.rounds, talk.base);
        let of_atomics = 1 << Phase::Atomics as u32;
        let mut phases: u32 = if talk.atomics { 2 * of_atomics - 1 } else { of_atomics - 1 };
        let [mut arrival, mut wait, mut total] =
            [talk.limits.arrival, talk.limits.wait, talk.limits.total].map(nanoseconds);
        let arguments = [
            argument(&mut mine),
            argument(&mut theirs),
            argument(&mut role),
            argument(&mut rounds),
            argument(&mut base),
            argument(&mut phases),
            argument(&mut arrival),
            argument(&mut wait),
            argument(&mut total),
            argument(&mut heard),
        ];
        launch(table, self.talk, (1, WARP), stream, arguments)
    }

    /// Returns the channels of two sides of which both have room on this GPU.
    pub(super) fn channels(&self) -> u32 {
        (self.multiprocessors / 2).clamp(1, 32)
    }

    /// Runs channels, after the talk of the same side.
    pub(super) fn channel(
        &self,
        table: &Table,
        stream: CUstream,
        talk: &Talk,
        [mut mine, mut theirs]: [u64; 2],
        (mut heard, channels): (u64, u32),
    ) -> Result<(), HardwareError> {
        let TalkLimits { arrival, wait, channels: each, .. } = talk.limits;
        let [mut arrival, mut wait, mut each] = [arrival, wait, each].map(nanoseconds);
        let (mut base, mut rounds) = (talk.base, CHANNEL_ROUNDS);
        let arguments = [
            argument(&mut mine),
            argument(&mut theirs),
            argument(&mut base),
            argument(&mut rounds),
            argument(&mut arrival),
            argument(&mut wait),
            argument(&mut each),
            argument(&mut heard),
        ];
        launch(table, self.channel, (channels, BLOCK), stream, arguments)
    }

    /// Follows pointers through the memory at an address. Writes time and number of loads to the words at `hops`.
    pub(super) fn chase(
        &self,
        table: &Table,
        stream: CUstream,
        chase: &Chase,
        mut memory: u64,
        mut hops: u64,
    ) -> Result<(), HardwareError> {
        let (mut count, mut stride, mut loads) = (chase.count, chase.stride, chase.hops);
        let mut limit = nanoseconds(chase.limit);
        let arguments = [
            argument(&mut memory),
            argument(&mut count),
            argument(&mut stride),
            argument(&mut loads),
            argument(&mut limit),
            argument(&mut hops),
        ];
        launch(table, self.chase, (1, WARP), stream, arguments)
    }

    /// Serves lists of blocks of the memory at an address, all at once. Writes three words for each to `passed`.
    #[allow(clippy::cast_possible_truncation, reason = "at most 36 lists")]
    pub(super) fn links(
        &self,
        table: &Table,
        stream: CUstream,
        traffic: &BlockTraffic,
        mut memory: u64,
        mut passed: u64,
    ) -> Result<(), HardwareError> {
        /// Threads that serve a block together.
        const LANES: u32 = 16;
        let (mut work, mut number) = (traffic.work as u32, traffic.lists.len() as u32);
        let (mut seed, mut last) = (traffic.seed, traffic.last);
        let mut lists = Lists::of(traffic);
        let (parts, threads) = match traffic.work {
            BlockWork::Count | BlockWork::Chase => (1, WARP),
            BlockWork::Store => (LANES * STORE_GROUPS / THREADS, THREADS),
            BlockWork::Load => (LANES * LOAD_GROUPS / THREADS, THREADS),
        };
        let arguments = [
            argument(&mut memory),
            argument(&mut work),
            argument(&mut number),
            argument(&mut lists),
            argument(&mut seed),
            argument(&mut last),
            argument(&mut passed),
        ];
        launch(table, self.links, (number * parts, threads), stream, arguments)
    }

    /// Launches the kernels that talk, chase and use single links, with nothing to do.
    pub(super) fn of_nothing(&self, table: &Table) -> Result<(), HardwareError> {
        // As long as the longest argument of these kernels.
        let mut zeros = [0_u64; size_of::<Lists>().div_ceil(8)];
        let zero = argument(&mut zeros);
        launch(table, self.talk, (1, WARP), DEFAULT_STREAM, [zero; 10])?;
        launch(table, self.channel, (1, BLOCK), DEFAULT_STREAM, [zero; 8])?;
        launch(table, self.chase, (1, WARP), DEFAULT_STREAM, [zero; 6])?;
        launch(table, self.links, (1, WARP), DEFAULT_STREAM, [zero; 7])
    }

    /// Counts words that differ from what was sent, in words that hold [`super::returned::NO_COUNTS`] at first. A turn other
    /// than 0 poisons them, on few blocks: with four times as many, copies both ways lose another 0.8% (2 x H200).
    pub(super) fn check(
        &self,
        table: &Table,
        stream: CUstream,
        mut words: u64,
        bytes: u64,
        Sent { mut seed, mut from, mut before }: Sent,
        (mut result, turn): (u64, u32),
    ) -> Result<(), HardwareError> {
        let (mut count, mut turn) = (bytes / 8, u64::from(turn));
        let most = if turn == 0 { 4 * self.multiprocessors } else { self.multiprocessors };
        let blocks = grid(count.div_ceil(8 * u64::from(BLOCK)), most);
        let arguments = [
            argument(&mut words),
            argument(&mut count),
            argument(&mut seed),
            argument(&mut from),
            argument(&mut before),
            argument(&mut turn),
            argument(&mut result),
        ];
        launch(table, self.check, (blocks, BLOCK), stream, arguments)
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the number of blocks: at least one, at most `most`.
fn grid(wanted: u64, most: u32) -> u32 {
    u32::try_from(wanted.clamp(1, u64::from(most.max(1)))).unwrap_or(most)
}

fn argument<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

/// Launches a kernel with one-dimensional grid and block.
fn launch<const N: usize>(
    table: &Table,
    function: Function,
    (blocks, threads): (c_uint, c_uint),
    stream: CUstream,
    mut arguments: [*mut c_void; N],
) -> Result<(), HardwareError> {
    // SAFETY: the arguments point to values of the kernel's parameter types (each caller above
    // repeats one kernel's parameter list), which the driver copies during the call.
    let code = unsafe {
        (table.launch)(
            function.0,
            blocks,
            1,
            1,
            threads,
            1,
            1,
            0,
            stream,
            arguments.as_mut_ptr(),
            std::ptr::null_mut(),
        )
    };
    table.check("cuLaunchKernel", code)
}

/// CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT.
pub(super) const ATTRIBUTE_MULTIPROCESSORS: c_int = 16;
