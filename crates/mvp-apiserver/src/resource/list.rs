//! Lists: of one revision, whole or in pages. Entry: [`Call::list`].

use std::sync::Arc;

use http::Response;

use super::Call;
use super::page::{ListOptions, Token};
use crate::render::ListMetadata;
use crate::respond::Body;
use crate::selector::Selector;
use crate::status::Failure;
use crate::storage::{Object, Unreadable};

impl Call<'_> {
    pub(super) fn list(self) -> Result<Response<Body>, Failure> {
        let selector = Selector::new(self.target, self.query)?;
        let (metadata, objects) = self.page(&selector)?;
        Ok(self.show_list(metadata, &objects))
    }

    /// The selected objects of the requested page.
    pub(super) fn page(
        self,
        selector: &Selector,
    ) -> Result<(ListMetadata, Vec<Arc<Object>>), Failure> {
        let options = ListOptions::parse(self.target, self.query)?;
        let read = self.storage.range(&self.target.collection(), &options.range);
        let (revision, mut objects) =
            read.map_err(|error| match (error, &options.range.after) {
                (Unreadable::Future(current), _) => {
                    let asked = options.range.revision.unwrap_or_default();
                    Failure::too_large_version(asked, current)
                }
                (Unreadable::Compacted, Some(last)) => {
                    Failure::expired_page(Token::encode(self.target, last, None))
                }
                (Unreadable::Compacted, None) => Failure::expired_list(),
            })?;
        if options.not_older_than > revision {
            return Err(Failure::too_large_version(options.not_older_than, revision));
        }
        objects.retain(|object| selector.matches(object));
        let mut metadata = ListMetadata::at(revision);
        let remaining = objects.len().saturating_sub(options.limit);
        if options.limit > 0 && remaining > 0 {
            objects.truncate(options.limit);
            if let Some(last) = objects.last() {
                metadata.continue_token = Token::encode(self.target, &last.key, Some(revision));
            }
            // Real servers do not know how many objects a selector would leave.
            metadata.remaining_item_count = selector.is_everything().then_some(remaining);
        }
        Ok((metadata, objects))
    }
}
