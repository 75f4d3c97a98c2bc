//! SQLite on a file system with injectable faults.
//!
//! [`install`] wraps the default file system of SQLite. Every relevant call first asks the gate of its thread, if it
//! has one ([`with_gate`]); the gate permits the call, shortens a write, or returns the error that the call fails with.
//! A gate may also end the process, so that the call is never made. [`with_power_loss`] reverts writes that were not
//! synced; [`unsynced_files`] returns the files that have such writes.
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

/// The calls that ask the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SqliteCall {
    /// Opens a file, creating it if necessary.
    Open,
    /// Reads bytes.
    Read,
    /// Writes bytes.
    Write,
    /// Truncates a file.
    Truncate,
    /// Syncs a file.
    Sync,
    /// Deletes a file.
    Delete,
    /// Maps a region of the memory shared between processes, extending its file if necessary.
    Map,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SqliteFault {
    /// An I/O error.
    Io,
    /// A full disk.
    Full,
}

/// Decides which calls may be made.
pub trait SqliteGate {
    /// Returns the number of bytes that a call may process; called before every call. For a write it may be fewer than
    /// `bytes`, but at least one; the gate is then asked again for the rest. For calls other than reads and writes,
    /// `bytes` is 0.
    ///
    /// # Errors
    /// Returns the fault that the call fails with.
    fn check_call(&self, call: SqliteCall, bytes: usize) -> Result<usize, SqliteFault>;
}

thread_local! {
    static GATE: RefCell<Option<Arc<dyn SqliteGate>>> = const { RefCell::new(None) };
    // Unsynced writes in order; `None` unless a test records them.
    static UNSYNCED: RefCell<Option<Vec<UnsyncedWrite>>> = const { RefCell::new(None) };
}

/// The files with writes of any thread that are not synced.
static UNSYNCED_FILES: Mutex<BTreeSet<CString>> = Mutex::new(BTreeSet::new());

/// The content of a part of a file before it was written or truncated.
struct UnsyncedWrite {
    file: CString,
    offset: u64,
    bytes: Vec<u8>,
    // The length of the whole file.
    length: u64,
}

/// Wraps the default file system, once for the whole process. Databases that are already open are not affected.
///
/// # Panics
/// Panics if SQLite rejects the file system, because the tests would then be meaningless.
pub fn install() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        // SAFETY: a null name requests the default file system, which lives as long as the process.
        let real = unsafe { ffi::sqlite3_vfs_find(ptr::null()) };
        assert!(!real.is_null(), "SQLite has no default file system");
        // SAFETY: the pointer is not null, and SQLite changes nothing in the structure except its link in a list.
        let mut layer = unsafe { *real };
        layer.zName = c"faulty".as_ptr();
        layer.szOsFile = faulty_file_offset(layer.szOsFile) + size_of::<FaultyFile>() as c_int;
        layer.pNext = ptr::null_mut();
        layer.xOpen = Some(open);
        layer.xDelete = Some(delete);
        let layer = FaultyVfs { vfs: layer, real };
        // SAFETY: SQLite keeps the pointer, so the memory is never freed.
        let registered = unsafe { ffi::sqlite3_vfs_register(Box::into_raw(Box::new(layer)).cast(), 1) };
        assert_eq!(registered, ffi::SQLITE_OK, "SQLite does not take the file system");
    });
}

/// Runs an action with a gate in front of SQLite's calls on this thread.
pub fn with_gate<T>(gate: Arc<dyn SqliteGate>, operation: impl FnOnce() -> T) -> T {
    struct Restore(Option<Arc<dyn SqliteGate>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            GATE.replace(self.0.take());
        }
    }
    let _restore = Restore(GATE.replace(Some(gate)));
    operation()
}

/// Runs an action, then reverts SQLite's writes on this thread that were not synced, as a power failure would. No
/// database written to may still be open. File names are assumed to be durable.
///
/// # Errors
/// Fails if a file cannot be written to, which makes the test meaningless.
pub fn with_power_loss<T>(operation: impl FnOnce() -> T) -> io::Result<T> {
    UNSYNCED.replace(Some(Vec::new()));
    let done = operation();
    for UnsyncedWrite { file, offset, bytes, length } in
        UNSYNCED.replace(None).unwrap_or_default().iter().rev()
    {
        let file = OpenOptions::new().write(true).open(OsStr::from_bytes(file.as_bytes()))?;
        file.write_all_at(bytes, *offset)?;
        file.set_len(*length)?;
    }
    Ok(done)
}

/// Returns the files that SQLite has written to, on any thread since [`install`], without syncing them.
pub fn unsynced_files() -> Vec<PathBuf> {
    let files = UNSYNCED_FILES.lock().unwrap_or_else(PoisonError::into_inner);
    files.iter().map(|name| PathBuf::from(OsStr::from_bytes(name.as_bytes()))).collect()
}

/// A file system wrapper, and the real file system behind it.
#[repr(C)]
struct FaultyVfs {
    // Must be the first member, so that a pointer to it is also a pointer to the whole.
    vfs: ffi::sqlite3_vfs,
    real: *mut ffi::sqlite3_vfs,
}

/// The wrapper's data of an open file, placed after the real file system's data in the file's memory.
#[repr(C)]
struct FaultyFile {
    // Must be the first member: the file's `pMethods` points to it, and so to the whole.
    methods: ffi::sqlite3_io_methods,
    real: *const ffi::sqlite3_io_methods,
    // Null for a file without a name. SQLite keeps it until the file is closed.
    name: *const c_char,
}

/// Returns the offset of [`FaultyFile`] in a file's memory.
fn faulty_file_offset(real_size: c_int) -> c_int {
    let align = align_of::<FaultyFile>() as c_int;
    (real_size + align - 1) / align * align
}

fn ask_gate(call: SqliteCall, bytes: usize) -> Result<usize, SqliteFault> {
    // The gate is not borrowed while it is called, so that it may use SQLite itself.
    let gate = GATE.try_with(|gate| gate.borrow().clone()).ok().flatten();
    gate.map_or(Ok(bytes), |gate| gate.check_call(call, bytes))
}

fn error_code(fault: SqliteFault, io: c_int) -> c_int {
    match fault {
        SqliteFault::Io => io,
        SqliteFault::Full => ffi::SQLITE_FULL,
    }
}

/// Returns the methods of the real file system.
///
/// # Safety
/// The file must have been opened by [`open`] and not closed.
unsafe fn real_methods(file: *mut ffi::sqlite3_file) -> &'static ffi::sqlite3_io_methods {
    // SAFETY: `open` made `pMethods` point to the first member of a `FaultyFile`; the method tables of the real file
    // system are static.
    unsafe { &*(*(*file).pMethods.cast::<FaultyFile>()).real }
}

/// Returns the name of a file, if it has one.
///
/// # Safety
/// As for [`real_methods`].
unsafe fn file_name(file: *mut ffi::sqlite3_file) -> Option<CString> {
    // SAFETY: as in `real_methods`; the name is a valid C string as long as the file is open.
    unsafe {
        let name = (*(*file).pMethods.cast::<FaultyFile>()).name;
        (!name.is_null()).then(|| CStr::from_ptr(name).to_owned())
    }
}

/// Records that a file is written to, and the old content of the written part if a test will revert it.
///
/// # Safety
/// As for [`real_methods`].
unsafe fn remember_content(file: *mut ffi::sqlite3_file, offset: u64, amount: u64) {
    // SAFETY: guaranteed by the caller.
    if let Some(name) = unsafe { file_name(file) } {
        UNSYNCED_FILES.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
    }
    if UNSYNCED.with_borrow(Option::is_none) {
        return;
    }
    // SAFETY: the methods belong to this file, and the buffer has the given length.
    unsafe {
        let (Some(name), Some(size), Some(read)) =
            (file_name(file), real_methods(file).xFileSize, real_methods(file).xRead)
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
        let before = UnsyncedWrite { file: name, offset, bytes, length };
        UNSYNCED.with_borrow_mut(|unsynced| unsynced.as_mut().map(|unsynced| unsynced.push(before)));
    }
}

/// Discards the recorded content of a file that is now durable or deleted.
fn forget_content(name: &CStr) {
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
    // SAFETY: SQLite passes the registered file system, and a file of the requested size. The real file system uses the
    // first part of that memory, and the rest belongs to the wrapper.
    unsafe {
        (*file).pMethods = ptr::null();
        if let Err(fault) = ask_gate(SqliteCall::Open, 0) {
            return error_code(fault, ffi::SQLITE_CANTOPEN);
        }
        let vfs = (*vfs.cast::<FaultyVfs>()).real;
        let Some(real_open) = (*vfs).xOpen else { return ffi::SQLITE_MISUSE };
        let opened = real_open(vfs, name, file, flags, out_flags);
        let real = (*file).pMethods;
        if !real.is_null() {
            let faulty_file =
                file.cast::<u8>().add(faulty_file_offset((*vfs).szOsFile) as usize).cast::<FaultyFile>();
            let mut methods = *real;
            methods.xRead = Some(read);
            methods.xWrite = Some(write);
            methods.xTruncate = Some(truncate);
            methods.xSync = Some(sync);
            methods.xShmMap = methods.xShmMap.and(Some(map));
            faulty_file.write(FaultyFile { methods, real, name });
            (*file).pMethods = faulty_file.cast();
        }
        opened
    }
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync_directory: c_int) -> c_int {
    if let Err(fault) = ask_gate(SqliteCall::Delete, 0) {
        return error_code(fault, ffi::SQLITE_IOERR_DELETE);
    }
    // SAFETY: the arguments are forwarded unchanged to the real file system.
    unsafe {
        forget_content(CStr::from_ptr(name));
        let vfs = (*vfs.cast::<FaultyVfs>()).real;
        (*vfs).xDelete.map_or(ffi::SQLITE_MISUSE, |real| real(vfs, name, sync_directory))
    }
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    buffer: *mut c_void,
    amount: c_int,
    offset: i64,
) -> c_int {
    if let Err(fault) = ask_gate(SqliteCall::Read, amount.unsigned_abs() as usize) {
        return error_code(fault, ffi::SQLITE_IOERR_READ);
    }
    // SAFETY: the arguments are forwarded unchanged; the file was opened by `open`.
    unsafe { real_methods(file).xRead.map_or(ffi::SQLITE_MISUSE, |real| real(file, buffer, amount, offset)) }
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
        let allowed = match ask_gate(SqliteCall::Write, left.unsigned_abs() as usize) {
            Ok(allowed) => c_int::try_from(allowed).unwrap_or(left).clamp(1, left),
            Err(fault) => return error_code(fault, ffi::SQLITE_IOERR_WRITE),
        };
        // SAFETY: a part of the bytes that SQLite writes, at its own offset; the file was opened by `open`.
        let done = unsafe {
            let start = offset + i64::from(written);
            remember_content(file, start.unsigned_abs(), allowed.unsigned_abs().into());
            let from = from.cast::<u8>().add(written.unsigned_abs() as usize).cast();
            real_methods(file).xWrite.map_or(ffi::SQLITE_MISUSE, |real| real(file, from, allowed, start))
        };
        if done != ffi::SQLITE_OK {
            return done;
        }
        written += allowed;
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    if let Err(fault) = ask_gate(SqliteCall::Truncate, 0) {
        return error_code(fault, ffi::SQLITE_IOERR_TRUNCATE);
    }
    // SAFETY: the arguments are forwarded unchanged; the file was opened by `open`.
    unsafe {
        remember_content(file, size.unsigned_abs(), u64::MAX);
        real_methods(file).xTruncate.map_or(ffi::SQLITE_MISUSE, |real| real(file, size))
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    if let Err(fault) = ask_gate(SqliteCall::Sync, 0) {
        return error_code(fault, ffi::SQLITE_IOERR_FSYNC);
    }
    // SAFETY: the arguments are forwarded unchanged; the file was opened by `open`.
    unsafe {
        let synced = real_methods(file).xSync.map_or(ffi::SQLITE_MISUSE, |real| real(file, flags));
        if let Some(name) = file_name(file).filter(|_| synced == ffi::SQLITE_OK) {
            forget_content(&name);
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
    if let Err(fault) = ask_gate(SqliteCall::Map, 0) {
        // SAFETY: SQLite passes a valid pointer, and expects null if there is no mapping.
        unsafe { *out = ptr::null_mut() };
        return error_code(fault, ffi::SQLITE_IOERR_SHMMAP);
    }
    // SAFETY: the arguments are forwarded unchanged; the file was opened by `open`.
    unsafe {
        real_methods(file).xShmMap.map_or(ffi::SQLITE_MISUSE, |real| real(file, region, size, extend, out))
    }
}
