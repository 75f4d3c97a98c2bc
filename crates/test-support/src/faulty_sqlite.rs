//! SQLite on a file system whose calls can be made to fail.
//!
//! [`install`] puts a layer before the file system that SQLite uses by default. Every call that matters asks the gate of
//! its thread first, if there is one ([`gated`]); the gate lets it pass, cuts a write short, or gives the error that the
//! call is to fail with. A gate may as well end the process: then the call is never made. [`losing_power`] takes back
//! what was written and not synced; [`unsynced_files`] says where that is.
#![allow(
    unsafe_code,
    reason = "SQLite takes a file system as a table of C functions over memory that it allocates"
)]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rusqlite::ffi;

/// The calls that ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SqliteCall {
    /// A file is opened, and created if need be.
    Open,
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// A file is cut.
    Truncate,
    /// A file is made durable.
    Sync,
    /// A file is removed.
    Delete,
    /// A part of the memory shared between processes is mapped, which makes its file longer if need be.
    Map,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SqliteFault {
    /// The device failed.
    Io,
    /// There is no room.
    Full,
}

/// Says whether a call may be made.
pub trait SqliteGate {
    /// Is asked before every call. Of a write it may allow fewer than `bytes`, at least one; then it is asked again for
    /// the rest. For other calls than reads and writes `bytes` is 0.
    ///
    /// # Errors
    /// Returns how the call is to fail.
    fn pass(&self, call: SqliteCall, bytes: usize) -> Result<usize, SqliteFault>;
}

thread_local! {
    static GATE: RefCell<Option<Arc<dyn SqliteGate>>> = const { RefCell::new(None) };
    // What was written and not synced, in order; none if nobody wants to know.
    static UNSYNCED: RefCell<Option<Vec<Unsynced>>> = const { RefCell::new(None) };
}

/// The files that any thread wrote to and did not sync since.
static UNSYNCED_FILES: Mutex<BTreeSet<CString>> = Mutex::new(BTreeSet::new());

/// What a part of a file held before it was written or cut.
struct Unsynced {
    file: CString,
    offset: u64,
    bytes: Vec<u8>,
    // The length of the whole file.
    length: u64,
}

/// Puts the layer before the default file system, once for the whole process. Databases that are open already are not
/// behind it.
///
/// # Panics
/// If SQLite does not take it: then no test of it means anything.
pub fn install() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        // SAFETY: no name asks for the default; what is found lives as long as the process.
        let real = unsafe { ffi::sqlite3_vfs_find(ptr::null()) };
        assert!(!real.is_null(), "SQLite has no default file system");
        // SAFETY: it is not null, and SQLite changes nothing of it but its place in a list.
        let mut layer = unsafe { *real };
        layer.zName = c"faulty".as_ptr();
        layer.szOsFile = own_offset(layer.szOsFile) + size_of::<Own>() as c_int;
        layer.pNext = ptr::null_mut();
        layer.xOpen = Some(open);
        layer.xDelete = Some(delete);
        let layer = Layer { layer, real };
        // SAFETY: SQLite keeps the pointer, so the memory is never freed.
        let registered = unsafe { ffi::sqlite3_vfs_register(Box::into_raw(Box::new(layer)).cast(), 1) };
        assert_eq!(registered, ffi::SQLITE_OK, "SQLite does not take the file system");
    });
}

/// Does something with a gate before the calls that SQLite makes on this thread.
pub fn gated<T>(gate: Arc<dyn SqliteGate>, act: impl FnOnce() -> T) -> T {
    struct Restore(Option<Arc<dyn SqliteGate>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            GATE.replace(self.0.take());
        }
    }
    let _restore = Restore(GATE.replace(Some(gate)));
    act()
}

/// Does something, then takes back what SQLite wrote meanwhile, on this thread, to files that it did not sync since: as
/// if the power had failed. No database that was written to may be open any more. Names are taken to be durable.
///
/// # Errors
/// Fails if a file cannot be written to; then the test has no meaning.
pub fn losing_power<T>(act: impl FnOnce() -> T) -> io::Result<T> {
    UNSYNCED.replace(Some(Vec::new()));
    let done = act();
    for Unsynced { file, offset, bytes, length } in UNSYNCED.replace(None).unwrap_or_default().iter().rev() {
        let file = OpenOptions::new().write(true).open(OsStr::from_bytes(file.as_bytes()))?;
        file.write_all_at(bytes, *offset)?;
        file.set_len(*length)?;
    }
    Ok(done)
}

/// Returns the files that SQLite wrote to, on any thread since [`install`], and did not sync since.
pub fn unsynced_files() -> Vec<PathBuf> {
    let files = UNSYNCED_FILES.lock().unwrap_or_else(PoisonError::into_inner);
    files.iter().map(|name| PathBuf::from(OsStr::from_bytes(name.as_bytes()))).collect()
}

/// A file system, and the one behind it.
#[repr(C)]
struct Layer {
    // The first member, so that a pointer to it is a pointer to the whole.
    layer: ffi::sqlite3_vfs,
    real: *mut ffi::sqlite3_vfs,
}

/// What is kept of an open file, in its own memory behind what the real file system keeps there.
#[repr(C)]
struct Own {
    // The first member: the file's `pMethods` point to it, and so to the whole.
    methods: ffi::sqlite3_io_methods,
    real: *const ffi::sqlite3_io_methods,
    // Null for a file without a name. SQLite keeps it until the file is closed.
    name: *const c_char,
}

/// Returns where [`Own`] lies in a file's memory.
fn own_offset(real_size: c_int) -> c_int {
    let align = align_of::<Own>() as c_int;
    (real_size + align - 1) / align * align
}

fn ask(call: SqliteCall, bytes: usize) -> Result<usize, SqliteFault> {
    // The gate is not borrowed while it is asked, so that it may use SQLite itself.
    let gate = GATE.try_with(|gate| gate.borrow().clone()).ok().flatten();
    gate.map_or(Ok(bytes), |gate| gate.pass(call, bytes))
}

fn code(fault: SqliteFault, io: c_int) -> c_int {
    match fault {
        SqliteFault::Io => io,
        SqliteFault::Full => ffi::SQLITE_FULL,
    }
}

/// Returns the methods of the real file system.
///
/// # Safety
/// The file was opened by [`open`] and is not closed.
unsafe fn real(file: *mut ffi::sqlite3_file) -> &'static ffi::sqlite3_io_methods {
    // SAFETY: `open` made them point to the first member of an `Own`; the tables of the real file system are static.
    unsafe { &*(*(*file).pMethods.cast::<Own>()).real }
}

/// Returns the name of a file, if it has one.
///
/// # Safety
/// As for [`real`].
unsafe fn name(file: *mut ffi::sqlite3_file) -> Option<CString> {
    // SAFETY: as in `real`; the name is a C string as long as the file is open.
    unsafe {
        let name = (*(*file).pMethods.cast::<Own>()).name;
        (!name.is_null()).then(|| CStr::from_ptr(name).to_owned())
    }
}

/// Remembers that a file is written to, and what a part of it holds if a test takes that back later.
///
/// # Safety
/// As for [`real`].
unsafe fn remember(file: *mut ffi::sqlite3_file, offset: u64, amount: u64) {
    // SAFETY: as for this function.
    if let Some(name) = unsafe { name(file) } {
        UNSYNCED_FILES.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
    }
    if UNSYNCED.with_borrow(Option::is_none) {
        return;
    }
    // SAFETY: the methods are those of this file, and the buffer has the length that is given.
    unsafe {
        let (Some(name), Some(size), Some(read)) = (name(file), real(file).xFileSize, real(file).xRead)
        else {
            return;
        };
        let mut length = 0;
        size(file, &raw mut length);
        let length = length.unsigned_abs();
        let mut bytes = vec![0; usize::try_from(amount.min(length.saturating_sub(offset))).unwrap_or(0)];
        if !bytes.is_empty() {
            let amount = c_int::try_from(bytes.len()).unwrap_or(c_int::MAX);
            read(file, bytes.as_mut_ptr().cast(), amount, offset.cast_signed());
        }
        let before = Unsynced { file: name, offset, bytes, length };
        UNSYNCED.with_borrow_mut(|unsynced| unsynced.as_mut().map(|unsynced| unsynced.push(before)));
    }
}

/// Forgets what a file held: what it holds now is durable, or it is gone.
fn forget(name: &CStr) {
    UNSYNCED_FILES.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    UNSYNCED.with_borrow_mut(|unsynced| {
        if let Some(unsynced) = unsynced {
            unsynced.retain(|unsynced| *unsynced.file != *name);
        }
    });
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite calls with the file system that it was given and with a file of the size that was asked for. The
    // real one sees a file as large as its own, and what is behind it belongs to this one.
    unsafe {
        (*file).pMethods = ptr::null();
        if let Err(fault) = ask(SqliteCall::Open, 0) {
            return code(fault, ffi::SQLITE_CANTOPEN);
        }
        let vfs = (*vfs.cast::<Layer>()).real;
        let Some(real_open) = (*vfs).xOpen else { return ffi::SQLITE_MISUSE };
        let opened = real_open(vfs, name, file, flags, out_flags);
        let real = (*file).pMethods;
        if !real.is_null() {
            let own = file.cast::<u8>().add(own_offset((*vfs).szOsFile) as usize).cast::<Own>();
            let mut methods = *real;
            methods.xRead = Some(read);
            methods.xWrite = Some(write);
            methods.xTruncate = Some(truncate);
            methods.xSync = Some(sync);
            methods.xShmMap = methods.xShmMap.and(Some(map));
            own.write(Own { methods, real, name });
            (*file).pMethods = own.cast();
        }
        opened
    }
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync_directory: c_int) -> c_int {
    if let Err(fault) = ask(SqliteCall::Delete, 0) {
        return code(fault, ffi::SQLITE_IOERR_DELETE);
    }
    // SAFETY: passed on as it came, to the file system that it is meant for.
    unsafe {
        forget(CStr::from_ptr(name));
        let vfs = (*vfs.cast::<Layer>()).real;
        (*vfs).xDelete.map_or(ffi::SQLITE_MISUSE, |real| real(vfs, name, sync_directory))
    }
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    to: *mut c_void,
    amount: c_int,
    offset: i64,
) -> c_int {
    if let Err(fault) = ask(SqliteCall::Read, amount.unsigned_abs() as usize) {
        return code(fault, ffi::SQLITE_IOERR_READ);
    }
    // SAFETY: passed on as it came; the file is one of `open`.
    unsafe { real(file).xRead.map_or(ffi::SQLITE_MISUSE, |real| real(file, to, amount, offset)) }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    amount: c_int,
    offset: i64,
) -> c_int {
    let mut written = 0;
    while written < amount {
        let left = amount - written;
        let allowed = match ask(SqliteCall::Write, left.unsigned_abs() as usize) {
            Ok(allowed) => c_int::try_from(allowed).unwrap_or(left).clamp(1, left),
            Err(fault) => return code(fault, ffi::SQLITE_IOERR_WRITE),
        };
        // SAFETY: a part of the bytes that SQLite wants to be written, at their own place; the file is one of `open`.
        let done = unsafe {
            let start = offset + i64::from(written);
            remember(file, start.unsigned_abs(), allowed.unsigned_abs().into());
            let from = from.cast::<u8>().add(written.unsigned_abs() as usize).cast();
            real(file).xWrite.map_or(ffi::SQLITE_MISUSE, |real| real(file, from, allowed, start))
        };
        if done != ffi::SQLITE_OK {
            return done;
        }
        written += allowed;
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    if let Err(fault) = ask(SqliteCall::Truncate, 0) {
        return code(fault, ffi::SQLITE_IOERR_TRUNCATE);
    }
    // SAFETY: passed on as it came; the file is one of `open`.
    unsafe {
        remember(file, size.unsigned_abs(), u64::MAX);
        real(file).xTruncate.map_or(ffi::SQLITE_MISUSE, |real| real(file, size))
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    if let Err(fault) = ask(SqliteCall::Sync, 0) {
        return code(fault, ffi::SQLITE_IOERR_FSYNC);
    }
    // SAFETY: passed on as it came; the file is one of `open`.
    unsafe {
        let synced = real(file).xSync.map_or(ffi::SQLITE_MISUSE, |real| real(file, flags));
        if let Some(name) = name(file).filter(|_| synced == ffi::SQLITE_OK) {
            forget(&name);
        }
        synced
    }
}

unsafe extern "C" fn map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    if let Err(fault) = ask(SqliteCall::Map, 0) {
        // SAFETY: SQLite wants to be told that there is no mapping.
        unsafe { *out = ptr::null_mut() };
        return code(fault, ffi::SQLITE_IOERR_SHMMAP);
    }
    // SAFETY: passed on as it came; the file is one of `open`.
    unsafe { real(file).xShmMap.map_or(ffi::SQLITE_MISUSE, |real| real(file, region, size, extend, out)) }
}
