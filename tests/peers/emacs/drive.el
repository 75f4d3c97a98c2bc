;;; drive.el --- Drives agent-shell without a terminal  -*- lexical-binding: t; -*-

;; `emacs -Q --batch -l drive.el AGENT', in the project's directory.  The plugins are directories in
;; BOWLINE_EMACS_PLUGINS.  The file a.txt is opened and changed, and not saved.  Two prompts are sent.  Each question is
;; answered with the key "y", for "allow once".  The second turn is cancelled once the file `started' exists.

;;; Code:

(dolist (directory (directory-files (getenv "BOWLINE_EMACS_PLUGINS") t "\\`[^.]"))
  (push directory load-path))

(require 'agent-shell)
(require 'text-property-search)

(defconst drive-agent (pop command-line-args-left))
(defconst drive-timeout 60)

(defvar drive-shell nil "The buffer of agent-shell.")

(defun drive-answer ()
  "Press \"y\" on the question that is shown, if one is."
  (with-current-buffer drive-shell
    (goto-char (point-max))
    (when-let* ((button (text-property-search-backward 'agent-shell-permission-button t t))
                (keys (get-text-property (prop-match-beginning button) 'keymap))
                (action (lookup-key keys "y")))
      (goto-char (prop-match-beginning button))
      (call-interactively action))))

(defun drive-wait (what condition)
  "Wait for CONDITION, which is described by WHAT, and answer the questions meanwhile."
  (let ((until (+ (float-time) drive-timeout)))
    (while (not (funcall condition))
      (when (> (float-time) until)
        (error "Waited in vain for %s" what))
      (accept-process-output nil 0.05)
      (drive-answer))))

(defun drive-is-idle ()
  "Return whether no turn runs."
  (with-current-buffer drive-shell
    (not (shell-maker-busy))))

(defun drive-prompt ()
  "Send a prompt."
  (with-current-buffer drive-shell
    (agent-shell-insert :text "go on" :submit t)))

(defun drive-run ()
  "Run the script."
  (with-current-buffer (find-file-noselect "a.txt")
    (goto-char (point-max))
    (insert "not saved yet\n"))
  (setq drive-shell
        (agent-shell-start
         :config (agent-shell-make-agent-config
                  :mode-line-name "Bowline" :buffer-name "Bowline"
                  :shell-prompt "Bowline> " :shell-prompt-regexp "Bowline> "
                  :client-maker (lambda (buffer)
                                  (agent-shell--make-acp-client
                                   :command drive-agent :context-buffer buffer)))))
  (drive-prompt)
  (drive-wait "the end" #'drive-is-idle)
  (drive-prompt)
  (drive-wait "the command" (lambda () (file-exists-p "started")))
  (cl-letf (((symbol-function 'y-or-n-p) #'always))
    (with-current-buffer drive-shell
      (agent-shell-interrupt)))
  (drive-wait "the end" #'drive-is-idle)
  (write-region agent-shell--version nil (expand-file-name "version" (getenv "HOME"))))

(drive-run)

;;; drive.el ends here
