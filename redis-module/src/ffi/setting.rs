//! The registration of settings: `mooring.<name>`, read and set through functions.
//!
//! Invariants: a setting outlives its registration, as a static; the server has checked the range of an integer before
//! it sets one. No panic of a setting leaves these callbacks.

use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use redis_module::raw;

use super::loading::{LoadError, Loading, check};
use super::log::one_line;
use super::{Context, ERR, OK, OwnedText, Text, callbacks};
use crate::guard::guard;
use crate::setting::{Setting, SwitchSetting};

/// A text setting. `take` stores its value.
pub(crate) struct TextSetting {
    /// Its name without the module's.
    pub(crate) name: &'static CStr,
    /// Returns its current value.
    show: fn() -> String,
    /// Sets a new value, or returns in one line why not.
    take: fn(&[u8]) -> Result<(), String>,
    /// The string that was last returned to the server.
    shown: Mutex<Option<OwnedText>>,
}

impl TextSetting {
    /// A setting that `show` reads and `take` sets.
    pub(crate) const fn new(
        name: &'static CStr,
        show: fn() -> String,
        take: fn(&[u8]) -> Result<(), String>,
    ) -> Self {
        Self {
            name,
            show,
            take,
            shown: Mutex::new(None),
        }
    }

    /// Frees the string that was last returned to the server, before the module is unloaded.
    pub(crate) fn release(&self) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Loading<'_> {
    /// Registers a setting as `mooring.<name>`.
    pub(crate) fn register_setting(&self, setting: &'static Setting) -> Result<(), LoadError> {
        let status = api!(
            RedisModule_RegisterNumericConfig(
                self.context().raw,
                setting.name.as_ptr(),
                setting.get(),
                raw::REDISMODULE_CONFIG_DEFAULT,
                setting.least,
                setting.most,
                Some(get_setting),
                Some(set_setting),
                None,
                ptr::from_ref(setting).cast_mut().cast(),
            ),
            ERR
        );
        check(status, LoadError::RefusedName("the setting", setting.name))
    }

    /// Registers an on/off setting as `mooring.<name>`. [`Callbacks::switch_set`](super::Callbacks::switch_set)
    /// is called after it was set.
    pub(crate) fn register_switch(&self, setting: &'static SwitchSetting) -> Result<(), LoadError> {
        let status = api!(
            RedisModule_RegisterBoolConfig(
                self.context().raw,
                setting.name.as_ptr(),
                c_int::from(setting.get()),
                raw::REDISMODULE_CONFIG_DEFAULT,
                Some(get_switch),
                Some(set_switch),
                Some(apply_switch),
                ptr::from_ref(setting).cast_mut().cast(),
            ),
            ERR
        );
        check(status, LoadError::RefusedName("the setting", setting.name))
    }

    /// Reads the registered settings from the configuration file.
    pub(crate) fn read_settings(&self) -> Result<(), LoadError> {
        check(
            api!(RedisModule_LoadConfigs(self.context().raw), ERR),
            LoadError::Refused("the values of the settings"),
        )
    }

    /// Registers a text setting as `mooring.<name>`, with its current value as the default.
    pub(crate) fn register_text_setting(
        &self,
        setting: &'static TextSetting,
    ) -> Result<(), LoadError> {
        let default = CString::new((setting.show)()).unwrap_or_default();
        let status = api!(
            RedisModule_RegisterStringConfig(
                self.context().raw,
                setting.name.as_ptr(),
                default.as_ptr(),
                raw::REDISMODULE_CONFIG_DEFAULT,
                Some(get_text),
                Some(set_text),
                None,
                ptr::from_ref(setting).cast_mut().cast(),
            ),
            ERR
        );
        check(status, LoadError::RefusedName("the setting", setting.name))
    }
}

extern "C" fn get_setting(_name: *const c_char, setting: *mut c_void) -> c_longlong {
    // SAFETY: `register_setting` gave a `&'static Setting` along with this callback.
    let setting = unsafe { &*setting.cast::<Setting>() };
    guard(|| Ok(setting.get())).unwrap_or(setting.default)
}

extern "C" fn set_setting(
    _name: *const c_char,
    value: c_longlong,
    setting: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: as in `get_setting`. Redis has checked the range, and shared access is all that is needed.
    let setting = unsafe { &*setting.cast::<Setting>() };
    let set = guard(|| {
        setting.set(value);
        Ok(())
    });
    set.map_or(ERR, |()| OK)
}

extern "C" fn get_switch(_name: *const c_char, setting: *mut c_void) -> c_int {
    // SAFETY: `register_switch` gave a `&'static SwitchSetting` along with this callback.
    let setting = unsafe { &*setting.cast::<SwitchSetting>() };
    c_int::from(setting.get())
}

extern "C" fn set_switch(
    _name: *const c_char,
    value: c_int,
    setting: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: as in `get_switch`.
    let setting = unsafe { &*setting.cast::<SwitchSetting>() };
    setting.set(value != 0);
    OK
}

extern "C" fn apply_switch(
    context: *mut raw::RedisModuleCtx,
    _setting: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    callbacks::call(|module| module.switch_set(&Context::outside_commands(context)));
    OK
}

extern "C" fn get_text(_name: *const c_char, setting: *mut c_void) -> *mut raw::RedisModuleString {
    // SAFETY: `register_text_setting` gave a `&'static TextSetting` along with this callback.
    let setting = unsafe { &*setting.cast::<TextSetting>() };
    let shown = guard(|| Ok((setting.show)())).unwrap_or_default();
    let text = OwnedText::new(shown.as_bytes());
    let raw = text.raw;
    // The server copies it before it requests the next.
    *setting.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    raw
}

extern "C" fn set_text(
    _name: *const c_char,
    value: *mut raw::RedisModuleString,
    setting: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: as in `get_text`.
    let setting = unsafe { &*setting.cast::<TextSetting>() };
    // SAFETY: the server's string of the value lives for the length of this callback.
    let value = unsafe { Text::borrow(value) }.as_bytes();
    let taken = guard(|| Ok((setting.take)(value)));
    let Err(message) = taken.unwrap_or_else(|failure| Err(failure.to_string())) else {
        return OK;
    };
    if !error.is_null() {
        let line = one_line(&message);
        let raw = api!(
            RedisModule_CreateString(ptr::null_mut(), line.as_ptr(), line.as_bytes().len()),
            ptr::null_mut()
        );
        // SAFETY: the server passes a pointer for the message, and frees what is stored there.
        unsafe { *error = raw };
    }
    ERR
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "the panic is what is tested")]
    use super::*;

    #[test]
    fn a_setting_that_panics_is_refused_and_reads_as_nothing() {
        static BROKEN: TextSetting =
            TextSetting::new(c"broken", || panic!("a defect"), |_| panic!("a defect"));
        let setting = ptr::from_ref(&BROKEN).cast_mut().cast();
        let set = set_text(ptr::null(), ptr::null_mut(), setting, ptr::null_mut());
        assert_eq!(set, ERR);
        assert!(
            get_text(ptr::null(), setting).is_null(),
            "no server made a string"
        );
        BROKEN.release();
    }
}
